// Devices that misbehave.  Each test is a ctest entry of its own: XRT and the emulator read their
// environment once a process.
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/time/clock.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/worker_test_support.h"

namespace tandem::npu {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::PlanRunner;
using testing::StatusIs;
using testing::StepBuilder;

// NPU_EMU_HANG_MS=20000, after the self-test's three commands, once.
TEST(NpuFaultTest, AHangIsUnavailableWithinTheTimeOut) {
  ASSERT_STREQ(std::getenv("NPU_EMU_HANG_MS"), "20000") << "run by ctest";
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker(absl::Seconds(2)));
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker.get()},
                                          AttendAndOutSegments(config), {}));
  StepBuilder steps(runner->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), {3});
  const StepBatch step = steps.batch();
  const absl::Time start = absl::Now();
  EXPECT_THAT(runner->RunStep(step),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("2000 ms")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20)) << "it waited for the device";
  // Refused from now on without waiting for the device again.
  const absl::Time again = absl::Now();
  EXPECT_THAT(runner->RunStep(step), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(runner->CopyKv({}), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(worker->CheckHealth(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_LT(absl::Now() - again, absl::Seconds(2));
}

// NPU_EMU_HANG_MS=1500, after the self-test's three commands, once.  The late command finds its
// buffers gone; the device opens again once it answers.
TEST(NpuFaultTest, AReloadBringsTheDeviceBack) {
  ASSERT_STREQ(std::getenv("NPU_EMU_HANG_MS"), "1500") << "run by ctest";
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker(absl::Milliseconds(500)));
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  const auto weights = testing::RandomWeightSet(config);
  const auto create = [&] {
    return PlanRunner::Create(weights, {worker.get()}, AttendAndOutSegments(config), {});
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto runner, create());
    StepBuilder steps(runner->limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), {3});
    ASSERT_THAT(runner->RunStep(steps.batch()), HasCode(absl::StatusCode::kUnavailable));
  }
  auto runner = create();
  for (int tries = 0; tries < 100 && !runner.ok(); ++tries) {
    EXPECT_THAT(runner, HasCode(absl::StatusCode::kUnavailable));
    absl::SleepFor(absl::Milliseconds(100));
    runner = create();
  }
  ASSERT_OK(runner);
  StepBuilder steps((*runner)->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), {3});
  WriteRandomInputs(**runner, 1, 1);
  EXPECT_OK((*runner)->RunStep(steps.batch()));
  EXPECT_OK(worker->CheckHealth());
}

// The real noop device of XRT.
TEST(NpuFaultTest, TheSelfTestRefusesXrtsNoopDevice) {
  EXPECT_THAT(MakeEmulatedWorker(absl::Seconds(60), BuildPath("tests/xrt-plain-noop")).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("wrote nothing")));
}

// NPU_EMU_SILENT=1
TEST(NpuFaultTest, TheSelfTestRefusesADeviceThatDoesNothing) {
  EXPECT_THAT(MakeEmulatedWorker().status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("wrote nothing")));
}

// NPU_EMU_WRONG_ANSWER=1
TEST(NpuFaultTest, TheSelfTestRefusesWrongAnswers) {
  EXPECT_THAT(MakeEmulatedWorker().status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected")));
}

// NPU_EMU_OVERRUN=1
TEST(NpuFaultTest, TheSelfTestRefusesWritesOutsideTheOutput) {
  EXPECT_THAT(MakeEmulatedWorker().status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("outside its output")));
}

// NPU_EMU_NO_USER_POINTERS=1: the copies that take their place are held against the reference by
// npu_conformance_by_copy.
TEST(NpuFaultTest, MemoryThatXrtRefusesIsCopiedAndTheReportSaysSo) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker.get()},
                                          AttendAndOutSegments(config), {}));
  const LoadReport& report = runner->load_reports()[0];
  EXPECT_EQ(report.weight_import, ImportPath::kUpload);
  EXPECT_EQ(report.exchange_import, ImportPath::kUpload);
  EXPECT_THAT(report.note, HasSubstr("weights by user pointer failed"));
  EXPECT_THAT(report.note, HasSubstr("exchange by user pointer failed"));
}

TEST(NpuFaultTest, AMissingEmulatorNamesTheFix) {
  EXPECT_THAT(MakeEmulatedWorker(absl::Seconds(60), "/nonexistent").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("--emulated-xrt")));
}

}  // namespace
}  // namespace tandem::npu
