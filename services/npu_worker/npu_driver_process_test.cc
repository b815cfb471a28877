// The program on an NPU that gives wrong answers: over a current XRT on the emulated driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "services/common/base/exit_codes.h"
#include "services/common/rpc/worker_absence.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::npu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kSkipped = 77;  // of run.sh
constexpr char kReason[] = "the NPU is there but gives wrong answers";

struct Ended {
  int code = -1;
  std::string text;  // both streams
};

Ended RunWorker(const std::string& environment, const std::string& arguments) {
  const std::string command =
      "env NPU_DRIVER=" + BuildPath("lib/tandem/npu-driver") + " " + environment + " timeout 60 " +
      SourcePath("services/npu_worker/emulator/driver/run.sh") + " " +
      BuildPath(NPU_WORKER_PROGRAM) + " --kernels " +
      BuildPath("lib/tandem/npu-driver/npu4/package") + " " + arguments + " 2>&1";
  Ended ended;
  FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return ended;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) ended.text += buffer;
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

class NpuDriverProcessTest : public ::testing::TestWithParam<const char*> {
 protected:
  // The worker's flags: a policy and a socket.
  std::string Flags() const {
    return "--npu=" + std::string(GetParam()) + " --name npu7 --listen " + target_;
  }
  const TemporaryDirectory folder_;
  const std::string target_ = "unix:" + folder_.path() + "/npu.sock";
};

TEST_P(NpuDriverProcessTest, WrongAnswersAtTheStartAreAnErrorAndNoMissingNpu) {
  const Ended ended = RunWorker("NPU_EMU_WRONG_ANSWER=1", Flags());
  if (ended.code == kSkipped) GTEST_SKIP() << ended.text;
  EXPECT_EQ(ended.code, kExitWrongAnswers) << ended.text;
  EXPECT_THAT(ended.text, AllOf(HasSubstr("level=error"), HasSubstr("the NPU gives wrong answers"),
                                HasSubstr(kReason), Not(HasSubstr("no NPU"))));
  const auto absence = ReadAbsence(target_);
  if (std::string(GetParam()) == "require") {
    EXPECT_FALSE(absence.has_value()) << "one that is required and fails is lost";
    return;
  }
  ASSERT_TRUE(absence.has_value()) << "the gateway would wait for it";
  EXPECT_EQ(absence->name, "npu7");
  EXPECT_TRUE(absence->device_present);
  EXPECT_THAT(absence->reason, AllOf(StartsWith(kReason), HasSubstr("expected")));
}

// The self-tests of seven operators and of a list of two commands, before it serves, and the device thread's pass; the one while it is idle does
// not.
TEST_P(NpuDriverProcessTest, WrongAnswersOfALaterSelfTestEndTheWorkerAsWell) {
  const Ended ended = RunWorker("NPU_EMU_WRONG_AFTER=10", Flags());
  if (ended.code == kSkipped) GTEST_SKIP() << ended.text;
  EXPECT_EQ(ended.code, kExitWrongAnswers) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("device lost, not serving")) << "it served before";
  EXPECT_THAT(ended.text, HasSubstr("the NPU gives wrong answers"));
  const auto absence = ReadAbsence(target_);
  ASSERT_EQ(absence.has_value(), std::string(GetParam()) != "require");
  if (absence.has_value()) {
    EXPECT_THAT(absence->reason, StartsWith(kReason));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, NpuDriverProcessTest,
                         ::testing::Values("auto", "prefer", "require"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace tandem::npu
