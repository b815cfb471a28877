// Operators that share one hardware context, and operators with a context each: the same numbers, fewer
// submissions.  XRT 2.25 and its NPU plugin, both unmodified, over the emulated driver.
#include <gtest/gtest.h>

#include <random>

#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/emulator/driver/driver_counts.h"
#include "services/npu_worker/worker_test_support.h"

namespace tandem::npu {
namespace {

using emulator::DriverCounts;
using emulator::ReadDriverCounts;
using testing::PlanRunner;
using testing::StepBuilder;

constexpr StageKind kStages[] = {StageKind::kQkv, StageKind::kAttend, StageKind::kOut,
                                 StageKind::kFfn};

// A plan of every stage, one a segment, on a worker of its own.
class Layers {
 public:
  Layers(const char* package, const std::shared_ptr<const WeightSet>& weights,
         const testing::RunLimits& limits)
      : worker_(MakeEmulatedWorker(absl::Seconds(60), "", DriverPackage(package))) {
    EXPECT_OK(worker_.status());
    std::vector<Segment> segments;
    for (uint32_t layer = 0; layer < weights->config().num_layers; ++layer) {
      for (const StageKind kind : kStages) {
        segments.push_back(testing::SingleStage({kind, layer}, weights->config()));
      }
    }
    auto runner = PlanRunner::Create(weights, {worker_->get()}, segments, limits);
    EXPECT_OK(runner.status());
    runner_ = *std::move(runner);
    steps_ = std::make_unique<StepBuilder>(runner_->limits());
    sequence_ = steps_->AddSequence();
  }

  // Another step of the sequence, over a residual that `seed` makes.
  void Begin(uint32_t num_rows, uint32_t seed) {
    num_rows_ = num_rows;
    steps_->Begin();
    steps_->AddRows(sequence_, std::vector<uint32_t>(num_rows, 3));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0f, 5.0f);
    std::vector<float> residual(num_rows * runner_->config().hidden_dim);
    for (float& value : residual) value = normal(random);
    runner_->WritePort(Port::kResidual, residual);
    ASSERT_OK(runner_->WriteAndCheckStep(steps_->batch()));
  }
  // What the driver did for one stage.
  DriverCounts Run(uint32_t layer, StageKind kind) {
    const DriverCounts before = ReadDriverCounts();
    const auto stage = static_cast<uint32_t>(std::ranges::find(kStages, kind) - kStages);
    EXPECT_OK(runner_->RunSegment(static_cast<uint32_t>(std::size(kStages)) * layer + stage));
    const DriverCounts after = ReadDriverCounts();
    return {.submissions = after.submissions - before.submissions,
            .commands = after.commands - before.commands,
            .context_changes = after.context_changes - before.context_changes,
            .configurations = after.configurations - before.configurations};
  }
  std::vector<std::vector<float>> Outputs() const {
    std::vector<std::vector<float>> outputs;
    for (const Port port :
         {Port::kQ, Port::kK, Port::kV, Port::kAttention, Port::kProjection, Port::kResidual}) {
      outputs.push_back(runner_->ReadPort(port, num_rows_));
    }
    return outputs;
  }

 private:
  absl::StatusOr<std::unique_ptr<NpuWorker>> worker_;
  std::unique_ptr<PlanRunner> runner_;
  std::unique_ptr<StepBuilder> steps_;
  uint32_t sequence_ = 0;
  uint32_t num_rows_ = 0;
};

// More operators than npu1 has contexts, and every stage of a layer.
TEST(NpuArrayContextTest, AllOperatorsOfAnXclbinRunInOneContext) {
  ASSERT_OK_AND_ASSIGN(const OperatorPackage package,
                       OperatorPackage::Read(DriverPackage("package")));
  EXPECT_GT(package.operators.size(), 6u);
  {
    const auto weights = testing::RandomWeightSet(testing::MakeConfig({.num_layers = 2}));
    Layers layers("package", weights, {});
    EXPECT_EQ(ReadDriverCounts().open_contexts, 1u);
    layers.Begin(5, 1);
    uint64_t context_changes = 0;
    for (const uint32_t layer : {0u, 1u}) {
      for (const StageKind kind : kStages)
        context_changes += layers.Run(layer, kind).context_changes;
    }
    EXPECT_EQ(context_changes, 0u);
    EXPECT_EQ(ReadDriverCounts().most_contexts, 1u) << "the self-test's as well";
  }
  EXPECT_EQ(ReadDriverCounts().open_contexts, 0u);
}

// V in q8_0 beside Q and K in q4_0: a GEMM of another kernel within Qkv.  1100 rows take three commands of
// each operator.
TEST(NpuArrayContextTest, SharedAndSeparateContextsGiveTheSameBits) {
  const auto weights = testing::RandomWeightSet(
      testing::MakeConfig({.num_layers = 2, .hidden_dim = 96, .context_len = 1400}),
      {.dtype = DType::kQ4_0, .v_dtype = DType::kQ8_0});
  const testing::RunLimits limits = {.max_rows = 1100, .max_sequences = 1};
  Layers shared("package", weights, limits), separate("separate", weights, limits);
  EXPECT_EQ(ReadDriverCounts().open_contexts, 1u + 4u) << "attention, two GEMMs, row functions";
  for (const uint32_t num_rows : {1u, 63u, 65u, 1100u}) {
    for (Layers* const layers : {&shared, &separate}) layers->Begin(num_rows, num_rows);
    for (const uint32_t layer : {0u, 1u}) {
      for (const StageKind kind : kStages) {
        for (Layers* const layers : {&shared, &separate}) layers->Run(layer, kind);
        ASSERT_EQ(shared.Outputs(), separate.Outputs())
            << num_rows << " rows, layer " << layer << ", stage " << static_cast<int>(kind);
      }
    }
  }
}

TEST(NpuArrayContextTest, AStageInOneContextIsOneSubmission) {
  const auto weights = testing::RandomWeightSet(
      testing::MakeConfig({.num_layers = 1, .hidden_dim = 96, .context_len = 1400}),
      {.dtype = DType::kQ4_0, .v_dtype = DType::kQ8_0});
  const testing::RunLimits limits = {.max_rows = 600, .max_sequences = 1};
  struct Expected {
    const char* package;
    uint64_t qkv_submissions, qkv_changes, ffn_submissions, ffn_changes;
  };
  // A context changes where a stage begins too: the one before was attention's, or a GEMM's.
  for (const Expected& expected :
       {Expected{"package", 1, 0, 1, 0}, Expected{"separate", 4, 3 + 1, 5, 4 + 1}}) {
    SCOPED_TRACE(expected.package);
    Layers layers(expected.package, weights, limits);
    // Afterwards contexts of one operator are configured.
    layers.Begin(1, 1);
    for (const StageKind kind : kStages) (void)layers.Run(0, kind);
    for (const uint32_t num_rows : {1u, 512u}) {
      layers.Begin(num_rows, 1);
      (void)layers.Run(0, StageKind::kAttend);
      const DriverCounts qkv = layers.Run(0, StageKind::kQkv);
      EXPECT_EQ(qkv.commands, 4u) << "norm, two GEMMs, heads";
      EXPECT_EQ(qkv.submissions, expected.qkv_submissions);
      EXPECT_EQ(qkv.context_changes, expected.qkv_changes);
      EXPECT_EQ(layers.Run(0, StageKind::kOut).submissions, 1u);
      const DriverCounts ffn = layers.Run(0, StageKind::kFfn);
      EXPECT_EQ(ffn.commands, 6u);
      EXPECT_EQ(ffn.submissions, expected.ffn_submissions);
      EXPECT_EQ(ffn.context_changes, expected.ffn_changes);
      const bool is_shared = expected.qkv_changes == 0;
      EXPECT_EQ(qkv.configurations, is_shared ? 4u : 0u);
      EXPECT_EQ(ffn.configurations, is_shared ? 5u : 0u) << "both norms at the start need one";
    }
  }
}

TEST(NpuArrayContextTest, ManyRowsTakeAListForEach512) {
  const auto weights =
      testing::RandomWeightSet(testing::MakeConfig({.num_layers = 1, .context_len = 1400}));
  Layers layers("package", weights, {.max_rows = 1100, .max_sequences = 1});
  layers.Begin(1030, 1);
  const DriverCounts ffn = layers.Run(0, StageKind::kFfn);
  EXPECT_EQ(ffn.submissions, 3u);
  EXPECT_EQ(ffn.commands, 3u * 6);
}

TEST(NpuArrayContextTest, StepsOfAllStagesMakeNoBuffers) {
  const auto weights =
      testing::RandomWeightSet(testing::MakeConfig({.num_layers = 2, .context_len = 1400}));
  Layers layers("package", weights, {.max_rows = 600, .max_sequences = 1});
  ASSERT_OK_AND_ASSIGN(const auto kernel, OpenDriverKernel("attention_64"));
  const uint64_t first = NextDeviceAddress(*kernel);
  const uint64_t stride = NextDeviceAddress(*kernel) - first;
  for (const uint32_t num_rows : {1u, 70u, 600u, 3u}) {
    layers.Begin(num_rows, num_rows);
    for (const uint32_t layer : {0u, 1u}) {
      for (const StageKind kind : kStages) (void)layers.Run(layer, kind);
    }
  }
  EXPECT_EQ(NextDeviceAddress(*kernel), first + 2 * stride);
}

}  // namespace
}  // namespace tandem::npu
