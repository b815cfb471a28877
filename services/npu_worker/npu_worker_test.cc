#include "services/npu_worker/npu_worker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/worker_test_support.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {
namespace {

using testing::HasCode;
using ::testing::HasSubstr;
using testing::PlanRunner;
using testing::StatusIs;
using testing::StepBuilder;

class NpuWorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static absl::StatusOr<std::unique_ptr<NpuWorker>> worker = MakeEmulatedWorker();
    ASSERT_OK(worker);
    worker_ = worker->get();
  }
  NpuWorker* worker_ = nullptr;
};

TEST_F(NpuWorkerTest, SaysThatItIsEmulatedAndWhatItRuns) {
  const WorkerDescription& self = worker_->description();
  EXPECT_TRUE(self.emulated);
  EXPECT_EQ(self.kind, DeviceKind::kNpu);
  EXPECT_THAT(self.device, HasSubstr("emulated"));
  EXPECT_EQ(self.head_dims, (std::vector<uint32_t>{64, 128, 256}));
  EXPECT_EQ(self.weight_dtypes.size(), size_t{kNumDTypes});
  EXPECT_OK(worker_->CheckHealth());
}

TEST_F(NpuWorkerTest, PortsInBfloat16AreRefusedByName) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  const std::vector<Segment> both = AttendAndOutSegments(config);
  for (const Segment& segment : both) {
    EXPECT_THAT(
        PlanRunner::Create(testing::RandomWeightSet(config), {worker_}, {segment},
                           {.port_dtype = DType::kBf16})
            .status(),
        StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("are f16, the plan has bf16")));
  }
}

TEST_F(NpuWorkerTest, ReportsHowMemoryReachedIt) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(const auto both,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          AttendAndOutSegments(config), {}));
  const LoadReport& report = both->load_reports()[0];
  EXPECT_EQ(report.weight_import, ImportPath::kUserPointer);
  EXPECT_EQ(report.exchange_import, ImportPath::kUserPointer);
  EXPECT_EQ(report.weight_bytes,
            config.num_layers * ShardBytes(DType::kBf16, config.hidden_dim, config.q_dim()));
  const uint64_t blocks = both->limits().num_blocks[0];
  EXPECT_EQ(report.kv_bytes, config.num_layers * blocks * 2 * config.kv_dim() * 16 * 2);
  // Attention alone reads no weights.
  ASSERT_OK_AND_ASSIGN(
      const auto attention,
      PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                         {testing::SingleStage({StageKind::kAttend, 0}, config)}, {}));
  EXPECT_EQ(attention->load_reports()[0].weight_import, ImportPath::kNone);
}

// A memfd stands in for a dmabuf: XRT and the emulated NPU treat the descriptors alike.
TEST_F(NpuWorkerTest, WeightsAreImportedAsDmabufWhereTheLoaderHasOne) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  const auto plain = testing::RandomWeightSet(config);
  std::vector<WeightRegion> regions;
  for (const WeightRegion& region : plain->regions()) {
    WeightRegion copy{.fd = UniqueFd(::dup(region.fd.get())),
                      .dmabuf_fd = UniqueFd(::dup(region.fd.get()))};
    ASSERT_OK_AND_ASSIGN(copy.mapping, Mapping::Map(copy.fd.get(), region.mapping.size(),
                                                    Mapping::Access::kReadOnly));
    regions.push_back(std::move(copy));
  }
  ASSERT_OK_AND_ASSIGN(
      std::shared_ptr<const WeightSet> shared,
      WeightSet::Create(plain->model_id(), config, plain->tensors(), std::move(regions)));
  const auto project = [&](std::shared_ptr<const WeightSet> weights, ImportPath expected) {
    auto runner = PlanRunner::Create(std::move(weights), {worker_},
                                     {testing::SingleStage({StageKind::kOut, 0}, config)}, {});
    EXPECT_OK(runner);
    EXPECT_EQ((*runner)->load_reports()[0].weight_import, expected)
        << (*runner)->load_reports()[0].note;
    StepBuilder steps((*runner)->limits());
    steps.Begin();
    steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(7, 3));
    (*runner)->WritePort(Port::kAttention, std::vector<float>(7 * config.q_dim(), 0.5f));
    EXPECT_OK((*runner)->RunStep(steps.batch()));
    return (*runner)->ReadPort(Port::kProjection, 7);
  };
  EXPECT_EQ(project(shared, ImportPath::kDmabuf), project(plain, ImportPath::kUserPointer));
}

TEST_F(NpuWorkerTest, StepsMakeNoBuffers) {
  const ModelConfig config = testing::MakeConfig({});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          AttendAndOutSegments(config), {.num_lanes = 2}));
  const std::string package = BuildPath("lib/tandem/npu/emulated/kernels.xclbin");
  ASSERT_OK_AND_ASSIGN(const auto kernel, NpuKernel::Open({.xclbin_path = package}, "MLIR_AIE"));
  const uint64_t first = NextDeviceAddress(*kernel);
  const uint64_t stride = NextDeviceAddress(*kernel) - first;
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  for (uint32_t step = 0; step < 100; ++step) {
    steps.Begin();
    steps.AddRows(sequence, std::vector<uint32_t>(1 + step % 3, 3));
    ASSERT_OK(runner->RunStep(steps.batch(), step % 2));
  }
  EXPECT_EQ(NextDeviceAddress(*kernel), first + 2 * stride);
}

TEST_F(NpuWorkerTest, LanesDoNotMix) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          AttendAndOutSegments(config), {.num_lanes = 3}));
  StepBuilder steps(runner->limits());
  std::vector<std::vector<float>> alone;
  for (uint32_t lane = 0; lane < 3; ++lane) {
    steps.Begin();
    steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(5 + lane, 3));
    WriteRandomInputs(*runner, 5 + lane, lane, lane);
    ASSERT_OK(runner->RunStep(steps.batch(), lane));
    alone.push_back(runner->ReadPort(Port::kProjection, 5 + lane, lane));
  }
  for (uint32_t lane = 0; lane < 3; ++lane) {
    EXPECT_EQ(runner->ReadPort(Port::kProjection, 5 + lane, lane), alone[lane]);
  }
  EXPECT_NE(alone[0], alone[1]);
}

// A sequence that outgrows the first length bucket: every row still sees what it should, which
// with equal keys is the mean of the values.
TEST_F(NpuWorkerTest, LongSequencesTakeTheNextBucket) {
  const ModelConfig config = testing::MakeConfig(
      {.num_layers = 1, .num_heads = 1, .num_kv_heads = 1, .context_len = 4400, .global_every = 1});
  constexpr uint32_t kChunk = 300;
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          {testing::SingleStage({StageKind::kAttend, 0}, config)},
                                          {.max_rows = kChunk, .max_sequences = 1}));
  StepBuilder steps(runner->limits());
  const uint32_t sequence = steps.AddSequence();
  for (uint32_t first = 0; first < 4200; first += kChunk) {
    steps.Begin();
    steps.AddRows(sequence, std::vector<uint32_t>(kChunk, 3));
    runner->WritePort(Port::kQ, std::vector<float>(kChunk * 64, 1.0f));
    runner->WritePort(Port::kK, std::vector<float>(kChunk * 64, 0.5f));
    // +1 at even positions, -1 at odd ones.
    std::vector<float> values(kChunk * 64);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i / 64 % 2 == 0 ? 1.0f : -1.0f;
    runner->WritePort(Port::kV, values);
    ASSERT_OK(runner->RunStep(steps.batch())) << first;
    const auto attention = runner->ReadPort(Port::kAttention, kChunk);
    for (uint32_t row = 0; row < kChunk; ++row) {
      const uint32_t count = first + row + 1;
      const float expected = count % 2 == 0 ? 0.0f : 1.0f / static_cast<float>(count);
      ASSERT_NEAR(attention[row * 64], expected, 1e-3 * expected + 1e-6) << first + row;
    }
  }
}

TEST_F(NpuWorkerTest, ContextsBeyondThePackageAreRefused) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1, .context_len = 131073});
  EXPECT_THAT(PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                 {testing::SingleStage({StageKind::kAttend, 0}, config)},
                                 {.max_sequences = 1, .num_blocks = {64, 64}})
                  .status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("131072")));
}

TEST_F(NpuWorkerTest, HeadSizesWithoutAKernelAreRefused) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1, .head_dim = 96});
  EXPECT_THAT(PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                 {testing::SingleStage({StageKind::kAttend, 0}, config)}, {})
                  .status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("head size 96")));
}

// The host checks steps before the device does; the device does not rely on it.
TEST_F(NpuWorkerTest, AStepTheKernelRefusesIsAnErrorAndTheNextOneRuns) {
  const ModelConfig config = testing::MakeConfig({.num_layers = 1});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_},
                                          AttendAndOutSegments(config), {}));
  StepBuilder steps(runner->limits());
  steps.Begin();
  steps.AddRows(steps.AddSequence(), std::vector<uint32_t>(5, 3));
  StepBatch step = steps.batch();
  const std::vector<uint32_t> bad_table(step.block_table.size(), 0x7FFFFFFF);
  StepBatch bad = step;
  bad.block_table = bad_table;
  EXPECT_THAT(
      testing::RunSegment(*worker_, {.segment_index = 0, .step = &bad, .first_of_step = true}),
      HasCode(absl::StatusCode::kInternal));
  EXPECT_OK(runner->RunStep(step));
}

}  // namespace
}  // namespace tandem::npu
