// The process: its policies, messages and exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "services/common/rpc/worker_absence.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"
#include "services/npu_worker/startup.h"

namespace tandem::npu {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int code = -1;
  std::string text;  // both streams
};

Ended RunWorker(const std::string& arguments, const std::string& environment = "") {
  const std::string command = "env -u XILINX_XRT -u XCL_EMULATION_MODE " + environment +
                              " timeout 60 " + BuildPath("bin/tandem-npu-worker") + " " +
                              arguments + " 2>&1";
  Ended ended;
  FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return ended;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) ended.text += buffer;
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
  return ended;
}

bool HasNpu() { return std::filesystem::exists("/dev/accel"); }

TEST(NpuProcessTest, TheEmulatedNpuIsFoundBesideTheExecutable) {
  const Ended ended = RunWorker("--npu=emulate --probe");
  EXPECT_EQ(ended.code, kExitSuccess) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("NPU emulated on the host"));
}

TEST(NpuProcessTest, XrtsNoopDeviceIsNotServed) {
  const Ended ended =
      RunWorker("--npu=emulate --emulated-xrt " + BuildPath("tests/xrt-plain-noop") +
                " --listen unix:/nonexistent/never-reached.sock");
  EXPECT_EQ(ended.code, kExitWrongAnswers) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("wrote nothing"));
}

TEST(NpuProcessTest, RequireFailsWithoutAnNpuAndNamesTheFix) {
  if (HasNpu()) GTEST_SKIP() << "this machine has an NPU";
  const Ended ended = RunWorker("--npu=require --probe");
  EXPECT_EQ(ended.code, kExitNoDevice) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("modprobe amdxdna"));
}

TEST(NpuProcessTest, PreferSaysThatThereIsNoneAndEndsWell) {
  if (HasNpu()) GTEST_SKIP() << "this machine has an NPU";
  const Ended ended = RunWorker("--npu=prefer --probe");
  EXPECT_EQ(ended.code, kExitNothingToDo) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("no NPU device node"));
}

// Without a note the gateway waits for the worker and takes it for lost.
TEST(NpuProcessTest, OnlyAWorkerThatIsNotWantedLeavesANoteForTheGateway) {
  if (HasNpu()) GTEST_SKIP() << "this machine has an NPU";
  const TemporaryDirectory folder;
  const std::string target = "unix:" + folder.path() + "/npu.sock";
  const std::string flags = " --name npu7 --listen " + target;
  EXPECT_EQ(RunWorker("--npu=prefer" + flags).code, kExitNothingToDo);
  const auto absent = ReadAbsence(target);
  ASSERT_TRUE(absent.has_value());
  EXPECT_EQ(absent->kind, "npu");
  EXPECT_EQ(absent->name, "npu7");
  EXPECT_FALSE(absent->device_present);
  EXPECT_THAT(absent->reason, HasSubstr("this machine has no NPU"));
  EXPECT_EQ(RunWorker("--npu=prefer --probe" + flags).code, kExitNothingToDo);
  EXPECT_TRUE(ReadAbsence(target).has_value()) << "a probe leaves the note alone";
  EXPECT_EQ(RunWorker("--npu=require" + flags).code, kExitNoDevice);
  EXPECT_FALSE(ReadAbsence(target).has_value()) << "one that is required and fails is lost";
  EXPECT_EQ(RunWorker("--npu=emulate --kernels /nonexistent" + flags).code, kExitNoDevice);
  EXPECT_FALSE(ReadAbsence(target).has_value());
  EXPECT_EQ(RunWorker("--npu=off" + flags).code, kExitUsage);
  EXPECT_TRUE(ReadAbsence(target).has_value());
}

TEST(NpuProcessTest, ADeviceThatIsThereAndCannotBeUsedIsNotAbsent) {
  const TemporaryDirectory dev;
  const StartupOptions options;
  EXPECT_FALSE(AbsenceOf(options, absl::NotFoundError("x"), dev.path()).device_present);
  std::ofstream(dev.path() + "/accel0") << "";
  const WorkerAbsence unusable =
      AbsenceOf(options, absl::NotFoundError("no kernel package in /somewhere"), dev.path());
  EXPECT_TRUE(unusable.device_present);
  EXPECT_EQ(unusable.reason, "no kernel package in /somewhere");
}

TEST(NpuProcessTest, WrongAnswersAreNeverTakenForAMissingNpu) {
  const absl::Status wrong = absl::DataLossError("output 3 is 1, expected 2");
  for (const NpuPolicy policy :
       {NpuPolicy::kAuto, NpuPolicy::kPrefer, NpuPolicy::kRequire, NpuPolicy::kEmulate}) {
    EXPECT_EQ(ExitCodeFor(policy, wrong), kExitWrongAnswers) << NpuPolicyName(policy);
  }
  EXPECT_EQ(ExitCodeFor(NpuPolicy::kOff, wrong), kExitUsage);
  EXPECT_EQ(ExitCodeFor(NpuPolicy::kPrefer, absl::NotFoundError("x")), kExitNothingToDo);
  const WorkerAbsence absence = AbsenceOf({}, wrong, "/nonexistent");
  EXPECT_TRUE(absence.device_present) << "it answered";
  EXPECT_EQ(
      absence.reason,
      "the NPU is there but gives wrong answers, so it is not used: output 3 is 1, expected 2");
}

TEST(NpuProcessTest, EmulationIsNeverTakenForAnNpu) {
  const std::string emulated =
      "XILINX_XRT=" + BuildPath("lib/tandem/xrt-emulated") + " XCL_EMULATION_MODE=noop";
  const Ended ended = RunWorker("--npu=require --probe", emulated);
  EXPECT_EQ(ended.code, kExitNoDevice) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("--npu=emulate"));
}

TEST(NpuProcessTest, OffAndBadFlagsAreUsageErrors) {
  EXPECT_EQ(RunWorker("--npu=off --probe").code, kExitUsage);
  EXPECT_EQ(RunWorker("--npu=perhaps --probe").code, kExitUsage);
  EXPECT_EQ(RunWorker("--no-such-flag").code, kExitUsage);
  EXPECT_EQ(RunWorker("--max-rows 0").code, kExitUsage);
  EXPECT_EQ(RunWorker("--help").code, kExitSuccess);
}

TEST(NpuProcessTest, AnAddressThatCannotBeListenedOnIsNotAMissingNpu) {
  const Ended ended = RunWorker("--npu=emulate --listen unix:/nonexistent/a.sock");
  EXPECT_EQ(ended.code, kExitUsage) << ended.text;
}

TEST(NpuProcessTest, AMissingKernelPackageNamesItsManifest) {
  const Ended ended = RunWorker("--npu=emulate --kernels /nonexistent --probe");
  EXPECT_EQ(ended.code, kExitNoDevice) << ended.text;
  EXPECT_THAT(ended.text, HasSubstr("/nonexistent/manifest.json"));
}

}  // namespace
}  // namespace tandem::npu
