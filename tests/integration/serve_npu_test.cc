// `tandem serve` over the NPU's emulated driver: an NPU that gives wrong answers, and one that computes
// prompts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"
#include "tests/integration/cluster_fixture.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kReason[] = "the NPU is there but gives wrong answers";

class ServeNpuTest : public ClusterFixture {
 protected:
  // `environment`: assignments for the NPU's worker.
  void InstallPrograms(const std::string& environment) {
    if (!fs::exists(SourcePath(".deps/xrt/stamp"))) {
      GTEST_SKIP() << "no XRT with its NPU plugin: run scripts/fetch-xrt";
    }
    const fs::path bin = programs_.path();
    // `tandem` looks for the others beside itself, so it is no link.
    fs::copy_file(BuildPath("bin/tandem"), bin / "tandem");
    for (const char* name : {"tandem-loader", "tandem-gpu-worker", "tandem-gateway"}) {
      fs::create_symlink(fs::path(BuildPath("bin")) / name, bin / name);
    }
    const fs::path worker = bin / "tandem-npu-worker";
    std::ofstream(worker) << absl::StrFormat(
        "#!/bin/sh\n"
        "echo started >> %s/starts\n"
        "export %s NPU_DRIVER=%s\n"
        // To this XRT the emulated driver is a driver, and to the gateway an emulated NPU.
        "exec %s %s "
        "$(echo \"$@\" | sed 's/--npu emulate/--npu require/') "
        "--kernels %s\n",
        programs_.path(), environment, BuildPath("lib/tandem/npu-driver"),
        SourcePath("services/npu_worker/emulator/driver/run.sh"), BuildPath(NPU_WORKER_PROGRAM),
        BuildPath("lib/tandem/npu-driver/npu4/package"));
    fs::permissions(worker, fs::perms::owner_all);
  }
  std::string Starts() const {
    std::ifstream file(programs_.path() + "/starts");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  const TemporaryDirectory programs_;
};

TEST_F(ServeNpuTest, WrongAnswersUnderAutoAndPreferAreSaidAndTheGpuServes) {
  InstallPrograms("NPU_EMU_WRONG_ANSWER=1");
  if (IsSkipped()) return;
  for (const char* policy : {"auto", "prefer"}) {
    SCOPED_TRACE(policy);
    fs::remove(programs_.path() + "/starts");
    StartCluster({.serve = true, .policy = policy, .program_folder = programs_.path()});
    const v1::GetStatusResponse status = Status();
    ASSERT_EQ(status.workers_size(), 2);
    EXPECT_EQ(status.workers(0).state(), "ready");
    EXPECT_EQ(status.workers(1).state(), "unusable");
    EXPECT_THAT(status.workers(1).detail(), HasSubstr(kReason));
    EXPECT_THAT(status.placement_notice(), AllOf(HasSubstr(kReason), Not(HasSubstr("no NPU"))));
    EXPECT_TRUE(Generate(GreedyRequest("The capital of", 4)).status.ok());
    // A restart would come after 0.1 s.
    absl::SleepFor(absl::Seconds(2));
    EXPECT_EQ(Starts(), "started\n") << "and it is not started again";
    EXPECT_THAT(LogOf("serve"), AllOf(HasSubstr("cannot run, and is not started again"),
                                      HasSubstr("exit code 5"), HasSubstr(kReason)));
    EXPECT_THAT(LogOf("npu_worker"), HasSubstr("the NPU gives wrong answers"));
    StopCluster();
  }
}

// All layers of a prompt on the emulated array, then decoding on the software GPU with that KV.
TEST_F(ServeNpuTest, TheNpuComputesPromptsAndTheGpuDecodes) {
  InstallPrograms("NPU_EMU_PROFILE=npu4");
  if (IsSkipped()) return;
  std::string prompt;
  for (int i = 0; i < 10; ++i) prompt += "The capital of France is a town. ";
  const v1::GenerateRequest request = GreedyRequest(prompt + "The capital of France is", 12);
  StartCluster({.serve = true,
                .gateway_flags = {"--npu-prompts"},
                .policy = "emulate",
                .model_folder = TestDataPath(""),
                .model_file = "demo",
                .program_folder = programs_.path()});
  WaitForStatus("both replicas", [](const v1::GetStatusResponse& status) {
    return status.replicas_size() == 2 && status.replicas(0).state() == "ready" &&
           status.replicas(1).state() == "ready";
  });
  const Answer answer = Generate(request);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens.size(), 12u);
  const v1::GetStatusResponse status = Status();
  EXPECT_EQ(status.replicas(0).role(), "decode");
  EXPECT_THAT(status.replicas(1).placement(), HasSubstr("Embed and Head on gpu0"));
  EXPECT_EQ(status.replicas(1).handed_over(), 1u);
  EXPECT_GT(status.replicas(0).kv_received_bytes(), 0u);
  StopCluster();

  StartCluster({.npu = false, .model_folder = TestDataPath(""), .model_file = "demo"});
  EXPECT_EQ(Generate(request).text, answer.text);
}

}  // namespace
}  // namespace tandem::testing
