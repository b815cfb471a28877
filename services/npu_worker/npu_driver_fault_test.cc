// What the driver and the firmware of an NPU do to the worker: limits, hangs, lost interrupts.  Over a
// current XRT on the emulated driver.  Each test is a ctest entry of its own, with the variables that its
// comment names.
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/emulator/driver/driver_counts.h"
#include "services/npu_worker/operators/gemm_self_test.h"
#include "services/npu_worker/operators/row_self_test.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/worker_test_support.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {
namespace {

using ::testing::AllOf;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::PlanRunner;
using testing::StatusIs;
using testing::StepBuilder;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// The self-test of one operator alone: GemmSelfTest, or RowSelfTest.
template <typename Test>
absl::Status TestAlone(const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(const OperatorPackage package, OperatorPackage::Read(DriverPackage()));
  const auto op = std::ranges::find(package.operators, name, &NpuOperator::name);
  if (op == package.operators.end()) return absl::NotFoundError("no such operator");
  TANDEM_ASSIGN_OR_RETURN(auto kernel, OpenDriverKernel(name));
  TANDEM_ASSIGN_OR_RETURN(const auto test, Test::Create(std::move(kernel), *op));
  return test->Run(absl::Seconds(60));
}
// The worker's self-test, and those of the row functions and of the GEMMs, end with DATA_LOSS and this text.
void ExpectRefusal(const std::string& text) {
  const auto is_refused = [&text](const std::string& name) {
    return StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(name), HasSubstr(text)));
  };
  EXPECT_THAT(MakeEmulatedWorker().status(), is_refused(""));
  for (const char* const name : {"gemm_q8_0", "gemm_q4_0", "gemm_bf16"}) {
    EXPECT_THAT(TestAlone<GemmSelfTest>(name), is_refused(name));
  }
  EXPECT_THAT(TestAlone<RowSelfTest>("rows"), is_refused("rows"));
}

// A plan of one layer, a segment for each kind of stage, and a step of one row.
class LoadedWorker {
 public:
  explicit LoadedWorker(NpuWorker& worker,
                        std::initializer_list<StageKind> kinds = {StageKind::kAttend})
      : worker_(worker) {
    for (const StageKind kind : kinds) {
      segments_.push_back(testing::SingleStage({kind, 0}, config_));
    }
  }
  absl::Status Load() {
    runner_.reset();
    auto runner = PlanRunner::Create(weights_, {&worker_}, segments_, {.kv_area_bytes = 1 << 20});
    if (!runner.ok()) return runner.status();
    runner_ = *std::move(runner);
    return absl::OkStatus();
  }
  absl::Status Run() {
    StepBuilder steps(runner_->limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), {3});
    WriteRandomInputs(*runner_, 1, 1);
    runner_->WritePort(Port::kResidual, ones);
    runner_->WritePort(Port::kProjection, ones);
    return runner_->RunStep(steps.batch());
  }
  // Reads the first block of layer 0, which has a window.
  absl::Status CopyKv() {
    constexpr uint32_t kBlock[] = {0};
    return runner_->CopyKv({.blocks = {{}, kBlock}});
  }
  std::vector<float> Attention() { return runner_->ReadPort(Port::kAttention, 1); }
  std::vector<float> Projection() { return runner_->ReadPort(Port::kProjection, 1); }
  std::vector<float> Residual() { return runner_->ReadPort(Port::kResidual, 1); }
  const std::vector<float> ones = std::vector<float>(testing::SmallModel{}.hidden_dim, 1.0f);

 private:
  NpuWorker& worker_;
  const ModelConfig config_ = testing::MakeConfig({.num_layers = 1});
  std::vector<Segment> segments_;
  const std::shared_ptr<const WeightSet> weights_ = testing::RandomWeightSet(config_);
  std::unique_ptr<PlanRunner> runner_;
};

// NPU_EMU_HANG_MS=3000, after the self-test's nine commands, once.  The driver gives the command up
// after 2 s, before the worker's time is over.
TEST(NpuDriverFaultTest, ACommandOfThreeSecondsIsGivenUpAndTheWorkerRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker);
  ASSERT_OK(loaded.Load());
  const absl::Time start = absl::Now();
  EXPECT_THAT(loaded.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("driver")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable)) << "until the plan is loaded";
  EXPECT_THAT(loaded.CopyKv(), HasCode(absl::StatusCode::kUnavailable)) << "as well";
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_OK(loaded.CopyKv());
  const std::vector<float> recovered = loaded.Attention();
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_EQ(loaded.Attention(), recovered);
  EXPECT_OK(worker->CheckHealth());
}

// NPU_EMU_HANG_MS=3000, after the self-test's nine commands and Attend, once.
TEST(NpuDriverFaultTest, AHangOfOutIsGivenUpAndTheWorkerRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker, {StageKind::kAttend, StageKind::kOut});
  ASSERT_OK(loaded.Load());
  EXPECT_THAT(loaded.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("driver")));
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable)) << "until the plan is loaded";
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  const std::vector<float> recovered = loaded.Projection();
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_EQ(loaded.Projection(), recovered);
  EXPECT_OK(worker->CheckHealth());
}

// NPU_EMU_HANG_MS=3000, after the self-test's nine commands, two norms and a GEMM, once: it is GeGLU that hangs.
// With an xclbin for each operator the self-test has seven.
TEST(NpuDriverFaultTest, AHangWithinFfnLeavesTheResidualAndTheWorkerRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker, {StageKind::kFfn});
  ASSERT_OK(loaded.Load());
  EXPECT_THAT(loaded.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("driver")));
  EXPECT_EQ(loaded.Residual(), loaded.ones);
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable)) << "until the plan is loaded";
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  const std::vector<float> recovered = loaded.Residual();
  EXPECT_NE(recovered, loaded.ones);
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_EQ(loaded.Residual(), recovered);
  EXPECT_OK(worker->CheckHealth());
}

// NPU_EMU_ERROR_AFTER=12: as above, GeGLU fails, and the list stops there.
TEST(NpuDriverFaultTest, AnErrorWithinAListLeavesTheResidualAndTheWorkerRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker, {StageKind::kFfn});
  ASSERT_OK(loaded.Load());
  const uint64_t before = emulator::ReadDriverCounts().commands;
  EXPECT_THAT(loaded.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("with an error")));
  EXPECT_EQ(emulator::ReadDriverCounts().commands - before, 3u) << "two norms, a GEMM";
  EXPECT_EQ(loaded.Residual(), loaded.ones);
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable)) << "until the plan is loaded";
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_NE(loaded.Residual(), loaded.ones);
  EXPECT_OK(worker->CheckHealth());
}

// NPU_EMU_HANG_MS=3000, as above: the list is one command for the worker's time.
TEST(NpuDriverFaultTest, TheWorkersOwnTimeIsOverWithinAList) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker(kRunTimeout));
  LoadedWorker loaded(*worker, {StageKind::kFfn});
  ASSERT_OK(loaded.Load());
  const absl::Time start = absl::Now();
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_LT(absl::Now() - start, kDriverRecovery);
  EXPECT_EQ(loaded.Residual(), loaded.ones);
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_NE(loaded.Residual(), loaded.ones);
}

// NPU_EMU_GONE_AFTER=15: the self-test's nine commands and the first step's six.
TEST(NpuDriverFaultTest, ADeviceThatIsGoneBeforeAListLeavesTheResidual) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker, {StageKind::kFfn});
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_NE(loaded.Residual(), loaded.ones);
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(loaded.Residual(), loaded.ones);
  EXPECT_FALSE(loaded.Load().ok());
}

// NPU_EMU_HANG_MS=3000, after the self-test's nine commands, once: the first check of health.
TEST(NpuDriverFaultTest, AFailedFirstCheckOfHealthIsTriedAgain) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  EXPECT_THAT(worker->CheckHealth(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_OK(worker->CheckHealth()) << "without a plan it opens the device again";
  LoadedWorker loaded(*worker);
  ASSERT_OK(loaded.Load());
  EXPECT_OK(loaded.Run());
}

// NPU_EMU_HANG_MS=3000, after the self-test's nine commands, once.
TEST(NpuDriverFaultTest, TheWorkersOwnTimeIsOverBeforeTheDriversIs) {
  EXPECT_LT(kRunTimeout, kDriverRecovery);
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker(kRunTimeout));
  LoadedWorker loaded(*worker);
  ASSERT_OK(loaded.Load());
  EXPECT_THAT(loaded.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("1900 ms")));
  ASSERT_OK(loaded.Load());
  EXPECT_OK(loaded.Run());
}

// NPU_EMU_LOST_INTERRUPT=10: the first command after the self-test.
TEST(NpuDriverFaultTest, ALostInterruptEndsTheStepAndTheWorkerRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker);
  ASSERT_OK(loaded.Load());
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable));
  ASSERT_OK(loaded.Load());
  EXPECT_OK(loaded.Run());
}

// NPU_EMU_REFUSE_SUBMIT=9: the first command after the self-test.
TEST(NpuDriverFaultTest, ARefusedStartEndsTheStepAndTheWorkerRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker);
  ASSERT_OK(loaded.Load());
  EXPECT_THAT(loaded.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("starting")));
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable)) << "until the plan is loaded";
  ASSERT_OK(loaded.Load());
  EXPECT_OK(loaded.Run());
  EXPECT_OK(worker->CheckHealth());
}

// NPU_EMU_ERROR_AFTER=9: the first command after the self-test.
TEST(NpuDriverFaultTest, ACommandThatEndsWithAnErrorEndsTheStepAndTheWorkerRecovers) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker);
  ASSERT_OK(loaded.Load());
  EXPECT_THAT(loaded.Run(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("with an error")));
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable)) << "until the plan is loaded";
  ASSERT_OK(loaded.Load());
  EXPECT_OK(loaded.Run());
  EXPECT_OK(worker->CheckHealth());
}

// NPU_EMU_GONE_AFTER=10: the self-test's nine commands and the first step.
TEST(NpuDriverFaultTest, ADeviceThatIsGoneIsUnavailable) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker);
  ASSERT_OK(loaded.Load());
  ASSERT_OK(loaded.Run());
  EXPECT_THAT(loaded.Run(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_FALSE(loaded.Load().ok());
}

// NPU_EMU_FIRMWARE_TIMEOUT=1
TEST(NpuDriverFaultTest, AFirmwareThatDoesNotAnswerNamesTheFix) {
  EXPECT_THAT(MakeEmulatedWorker().status(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("modprobe -r amdxdna")));
}

// NPU_EMU_PROFILE=npu1 NPU_EMU_OTHER_CONTEXTS=6
TEST(NpuDriverFaultTest, AnotherProcessThatHoldsAllContextsIsNamed) {
  EXPECT_THAT(MakeEmulatedWorker().status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("end other programs")));
}

// NPU_EMU_PROFILE=npu1
TEST(NpuDriverFaultTest, TheSeventhContextOfNpu1NamesTheFix) {
  std::vector<std::shared_ptr<NpuKernel>> kernels;
  for (int i = 0; i < 6; ++i) {
    ASSERT_OK_AND_ASSIGN(auto kernel, OpenDriverKernel("attention_64"));
    kernels.push_back(std::move(kernel));
  }
  EXPECT_THAT(OpenDriverKernel("attention_64").status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("end other programs")));
  kernels.pop_back();
  EXPECT_OK(OpenDriverKernel("attention_64"));
}

// Contexts that another process could open now.
size_t FreeContexts() {
  std::vector<std::shared_ptr<NpuKernel>> kernels;
  for (auto kernel = OpenDriverKernel("attention_64"); kernel.ok();
       kernel = OpenDriverKernel("attention_64")) {
    kernels.push_back(*std::move(kernel));
  }
  return kernels.size();
}

// NPU_EMU_PROFILE=npu1: six contexts.  NPU_DRIVER_PACKAGE=separate.
TEST(NpuDriverFaultTest, ContextsOfAnUnloadedPlanAreClosed) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  EXPECT_EQ(FreeContexts(), 5u) << "one is for the repeated self-test";
  LoadedWorker loaded(*worker, {StageKind::kAttend, StageKind::kFfn});
  ASSERT_OK(loaded.Load());
  EXPECT_EQ(FreeContexts(), 3u) << "attention, a GEMM, row functions";
  EXPECT_OK(worker->CheckHealth());
  worker->Unload(0);
  EXPECT_EQ(FreeContexts(), 5u);
  EXPECT_OK(worker->CheckHealth());
  ASSERT_OK(loaded.Load());
  EXPECT_OK(loaded.Run());
  EXPECT_EQ(FreeContexts(), 3u);
}

// NPU_EMU_PROFILE=npu1 NPU_EMU_OTHER_CONTEXTS=5: one of six is left, and the package has seven operators.
TEST(NpuDriverFaultTest, OneContextThatIsLeftIsEnoughForAnXclbinOfAllOperators) {
  ASSERT_OK_AND_ASSIGN(const auto worker, MakeEmulatedWorker());
  LoadedWorker loaded(*worker,
                      {StageKind::kQkv, StageKind::kAttend, StageKind::kOut, StageKind::kFfn});
  ASSERT_OK(loaded.Load());
  EXPECT_EQ(FreeContexts(), 0u);
  EXPECT_OK(loaded.Run());
  EXPECT_OK(worker->CheckHealth());
  worker->Unload(0);
  EXPECT_EQ(FreeContexts(), 0u) << "it is for the repeated self-test";
  EXPECT_OK(worker->CheckHealth());
}

// NPU_EMU_PROFILE=npu1 NPU_EMU_OTHER_CONTEXTS=5 NPU_DRIVER_PACKAGE=separate
TEST(NpuDriverFaultTest, AnXclbinForEachOperatorNeedsMoreContexts) {
  EXPECT_THAT(MakeEmulatedWorker().status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("share an xclbin")));
}

// NPU_EMU_PROFILE=npu1: 64 MiB, less what the context's own buffers and the kernel's configuration take.
TEST(NpuDriverFaultTest, InstructionsBeyondTheHeapNameTheFix) {
  ASSERT_OK_AND_ASSIGN(const auto kernel, OpenDriverKernel("attention_64"));
  const std::vector<uint32_t> words(kMiB / sizeof(uint32_t), 7);
  std::vector<NpuCode> codes;
  absl::Status status;
  while (status.ok() && codes.size() < 65) {
    auto code = kernel->MakeCode(CodeForm::kInstructions, words);
    status = code.status();
    if (status.ok()) codes.push_back(*std::move(code));
  }
  EXPECT_GE(codes.size(), 60u);
  EXPECT_LT(codes.size(), 65u) << "the 65th MiB";
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("instruction heap")));
  codes.pop_back();
  EXPECT_OK(kernel->MakeCode(CodeForm::kInstructions, words));
}

// NPU_EMU_SILENT=1
TEST(NpuDriverFaultTest, TheSelfTestRefusesAnArrayThatDoesNothing) {
  ExpectRefusal("wrote nothing");
}

// NPU_EMU_CHAIN_OF_ONE_KERNEL=1: each operator's own test passes.  Cores of the row functions wait for ever for
// what the GEMM's control code does not send.
TEST(NpuDriverFaultTest, TheSelfTestRefusesListsOfOneKernel) {
  EXPECT_THAT(MakeEmulatedWorker().status(), StatusIs(absl::StatusCode::kUnavailable,
                                                      HasSubstr("list of 'rows' and 'gemm_q8_0'")));
  EXPECT_OK(MakeEmulatedWorker(absl::Seconds(60), "", DriverPackage("separate"))) << "no such list";
}

// NPU_EMU_WRONG_ANSWER=1
TEST(NpuDriverFaultTest, TheSelfTestRefusesWrongAnswers) { ExpectRefusal("expected"); }

// NPU_EMU_OVERRUN=1
TEST(NpuDriverFaultTest, TheSelfTestRefusesWritesOutsideTheOutput) {
  ExpectRefusal("outside its output");
}

// NPU_EMU_PROFILE=npu1, with npu4's package.
TEST(NpuDriverFaultTest, APackageForAnotherNpuIsRefusedByName) {
  StartupOptions options{.policy = NpuPolicy::kRequire};
  options.worker.kernel_folder = DriverPackage() + "/../../npu4/package";
  ASSERT_OK(PrepareNpu(options));
  EXPECT_THAT(NpuWorker::Create(options.worker).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("built for npu4")));
}

// The emulated NPU's package, which was every package before version 3.
TEST(NpuDriverFaultTest, APackageOfTheInterfaceBeforeIsRefusedByName) {
  StartupOptions options{.policy = NpuPolicy::kRequire};
  options.worker.kernel_folder = BuildPath("lib/tandem/npu/emulated");
  ASSERT_OK(PrepareNpu(options));
  EXPECT_THAT(NpuWorker::Create(options.worker).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("float16")));
}

}  // namespace
}  // namespace tandem::npu
