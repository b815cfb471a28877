#include "services/gateway/executor/step_sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"

namespace tandem::gateway {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

// 6 layers, every third global; a position takes 2 * 2 * 64 * 2 bytes a layer.
constexpr uint64_t kLayerBytes = 512;
constexpr testing::SmallModel kModel = {
    .num_layers = 6, .context_len = 1000, .sliding_window = 100, .global_every = 3};

WorkerDescription MakeWorker(DeviceKind kind, uint64_t available) {
  WorkerDescription worker;
  worker.name = kind == DeviceKind::kGpu ? "gpu0" : "npu0";
  worker.kind = kind;
  worker.stages = {StageKind::kAttend};
  if (kind == DeviceKind::kGpu) {
    worker.stages = {StageKind::kEmbed, StageKind::kQkv, StageKind::kAttend,
                     StageKind::kOut,   StageKind::kFfn, StageKind::kHead};
  }
  worker.weight_dtypes = {DType::kBf16};
  worker.max_rows = 64;
  worker.memory_available_bytes = available;
  return worker;
}

Plan GpuPlan(uint64_t available) {
  return MakePlan(testing::MakeConfig(kModel), {DType::kBf16},
                  {MakeWorker(DeviceKind::kGpu, available)}, {.npu = NpuPolicy::kOff})
      .value();
}

// The least memory of a GPU that leaves `budget` for KV, beside weights.
uint64_t MemoryFor(uint64_t budget, uint64_t weights = 0) {
  uint64_t available = budget + weights;
  const auto kv = [&] { return (available - weights - available / 32) / 4 * 3; };
  while (kv() < budget) available += 4 * (budget - kv() + 1) / 3;
  while (kv() >= budget + 4) --available;
  return available;
}

SizingOptions Options() { return {.max_rows = 48, .max_sequences = 4, .block_tokens = 16}; }

TEST(StepSizingTest, StepsOfASoftwareDeviceHaveTheRowsThatItComputesInTime) {
  const ModelConfig config = testing::MakeConfig(kModel);
  const auto weights = testing::RandomWeightSet(config);
  double operations_of_row = 0;
  for (const PackedTensor& tensor : weights->tensors()) {
    const bool of_layer = !IsNorm(tensor.role) && tensor.role != WeightRole::kEmbedding;
    if (of_layer) operations_of_row += 2.0 * tensor.shape.rows * tensor.shape.cols;
  }
  SizingOptions options = Options();
  options.weights = weights->tensors();
  Plan plan = GpuPlan(0);
  const auto rows_at = [&](double rows_per_second) {
    plan.workers[0].operations_per_second = rows_per_second * operations_of_row;
    const auto limits = MakeStepLimits(config, plan, options);
    EXPECT_OK(limits.status());
    return limits.ok() ? limits->max_rows : 0;
  };
  EXPECT_EQ(rows_at(0), 48u) << "a device without a bound";
  EXPECT_EQ(rows_at(100), 48u);
  EXPECT_EQ(rows_at(2.05), 20u) << "ten seconds";
  EXPECT_EQ(rows_at(0.01), 8u) << "at least";
}

TEST(StepSizingTest, GivesEverySequenceItsContextWhenMemoryAllows) {
  ASSERT_OK_AND_ASSIGN(const StepLimits limits,
                       MakeStepLimits(testing::MakeConfig(kModel), GpuPlan(0), Options()));
  EXPECT_EQ(limits.max_rows, 48u);
  EXPECT_EQ(limits.max_sequences, 4u);
  EXPECT_EQ(limits.max_outputs, 48u);
  EXPECT_EQ(limits.context_len, 1000u);
  EXPECT_EQ(limits.num_blocks[kGlobalGroup], 4u * 63);  // ceil(1000 / 16)
  EXPECT_EQ(limits.num_blocks[kWindowGroup], 4u * 11);  // ceil(148 / 16) + 1
  EXPECT_EQ(limits.max_table_len, 2u * 4 * 63);
}

TEST(StepSizingTest, StepsHavePicturesWhereModelAndWorkersTakeThem) {
  ModelConfig config = testing::MakeConfig(kModel);
  const auto limits_of = [](const ModelConfig& of, const Plan& plan) {
    return MakeStepLimits(of, plan, Options()).value();
  };
  Plan plan = GpuPlan(0);
  plan.workers[0].takes_pictures = true;
  EXPECT_EQ(limits_of(config, plan).max_pictures, 0u);
  config.vision = VisionConfig{.tokens_per_image = 9};
  EXPECT_EQ(limits_of(config, plan).max_pictures, 5u);  // of 48 rows
  EXPECT_EQ(limits_of(config, plan).picture_rows, 9u);
  EXPECT_EQ(limits_of(config, GpuPlan(0)).max_pictures, 0u);
}

TEST(StepSizingTest, RowsAreTheSmallestWorkersAndSequencesAtMostTheRows) {
  SizingOptions options = Options();
  options.max_rows = 512;
  options.max_sequences = 100;
  ASSERT_OK_AND_ASSIGN(const StepLimits limits,
                       MakeStepLimits(testing::MakeConfig(kModel), GpuPlan(0), options));
  EXPECT_EQ(limits.max_rows, 64u);
  EXPECT_EQ(limits.max_sequences, 64u);
}

TEST(StepSizingTest, KvTakesThreeQuartersOfWhatIsLeftAtMost) {
  // Window pool: 44 blocks in 4 layers; then 100 blocks in the 2 global layers.
  const uint64_t window = 44 * 16 * 4 * kLayerBytes;
  const uint64_t global = 100 * 16 * 2 * kLayerBytes;
  const ModelConfig config = testing::MakeConfig(kModel);
  for (const uint64_t spare : {0, 1, 16000}) {
    const Plan plan = GpuPlan(MemoryFor(window + global + spare));
    ASSERT_OK_AND_ASSIGN(const StepLimits limits, MakeStepLimits(config, plan, Options()));
    EXPECT_EQ(limits.num_blocks[kGlobalGroup], 100u) << spare;
    EXPECT_EQ(limits.num_blocks[kWindowGroup], 44u);
    EXPECT_EQ(limits.context_len, 1000u);
  }
}

TEST(StepSizingTest, WindowsOfManySequencesLeaveHalfTheMemory) {
  constexpr uint64_t kWindowBlock = 16 * 4 * kLayerBytes, kGlobalBlock = 16 * 2 * kLayerBytes;
  const ModelConfig config = testing::MakeConfig(kModel);
  const auto limits = [&](uint64_t budget) {
    return MakeStepLimits(config, GpuPlan(MemoryFor(budget)), Options()).value();
  };
  // 44 blocks were wanted.
  const StepLimits half = limits(2 * 30 * kWindowBlock);
  EXPECT_EQ(half.num_blocks[kWindowGroup], 30u);
  EXPECT_EQ(half.num_blocks[kGlobalGroup], 60u);
  EXPECT_EQ(half.context_len, 960u);
  const StepLimits one = limits(11 * kWindowBlock + 13 * kGlobalBlock);
  EXPECT_EQ(one.num_blocks[kWindowGroup], 11u) << "one sequence's";
  EXPECT_EQ(one.num_blocks[kGlobalGroup], 13u);
}

// A GPU with room for more in all than its driver allocates at once.
TEST(StepSizingTest, KeysOfALayerFitOneBufferOfAGpu) {
  testing::SmallModel large = kModel;
  large.context_len = 1 << 20;
  const ModelConfig config = testing::MakeConfig(large);
  const Plan plan =
      MakePlan(config, {DType::kBf16}, {MakeWorker(DeviceKind::kGpu, 0)}, {.npu = NpuPolicy::kOff})
          .value();
  SizingOptions options = Options();
  options.max_sequences = 48;
  // A position's keys take kLayerBytes / 2.
  const uint64_t most = 0xFFE00000 / (16 * kLayerBytes / 2);
  ASSERT_OK_AND_ASSIGN(const StepLimits limits, MakeStepLimits(config, plan, options));
  EXPECT_EQ(limits.num_blocks[kGlobalGroup], most);
  options.kv_tokens = most * 16 + 1;
  EXPECT_THAT(MakeStepLimits(config, plan, options),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("keys of a layer")));
}

// The shape of Gemma 3 4B: a position's keys and values take 4 KiB.  Sixteen whole contexts would take 8 GiB
// of a layer, and an NPU's control code addresses 4.
TEST(StepSizingTest, KeysAndValuesOfALayerFitOneBufferOfAnNpu) {
  testing::SmallModel large = kModel;
  large.num_kv_heads = 4;
  large.head_dim = 256;
  large.context_len = 131072;
  const ModelConfig config = testing::MakeConfig(large);
  const auto plan_with = [&](NpuPolicy npu) {
    return MakePlan(config, {DType::kBf16},
                    {MakeWorker(DeviceKind::kGpu, 0), MakeWorker(DeviceKind::kNpu, 0)},
                    {.npu = npu})
        .value();
  };
  SizingOptions options = Options();
  options.max_sequences = 16;
  const auto blocks = [&](NpuPolicy npu) {
    return MakeStepLimits(config, plan_with(npu), options).value().num_blocks[kGlobalGroup];
  };
  constexpr uint64_t kSlotBytes = 2 * 4 * 256 * 2, kZeroSlots = 32;
  const uint64_t of_npu = blocks(NpuPolicy::kRequire);
  EXPECT_LE((of_npu * 16 + kZeroSlots) * kSlotBytes, ~0u) << "what KvSlab::Create takes";
  EXPECT_GT(((of_npu + 1) * 16 + kZeroSlots) * kSlotBytes, ~0u) << "and no more";
  EXPECT_GT(blocks(NpuPolicy::kOff), of_npu) << "an NPU that holds no KV sets no limit";
  options.kv_tokens = static_cast<uint32_t>(of_npu * 16);
  EXPECT_OK(MakeStepLimits(config, plan_with(NpuPolicy::kRequire), options));
  options.kv_tokens += 1;
  EXPECT_THAT(MakeStepLimits(config, plan_with(NpuPolicy::kRequire), options),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("do not fit npu0: keys and values of a layer")));
}

TEST(StepSizingTest, AContextLongerThanThePoolIsCutToIt) {
  SizingOptions options = Options();
  options.kv_tokens = 333;
  ASSERT_OK_AND_ASSIGN(const StepLimits limits,
                       MakeStepLimits(testing::MakeConfig(kModel), GpuPlan(0), options));
  EXPECT_EQ(limits.num_blocks[kGlobalGroup], 21u);
  EXPECT_EQ(limits.num_blocks[kWindowGroup], 21u) << "capped by the global pool";
  EXPECT_EQ(limits.context_len, 336u);
}

TEST(StepSizingTest, CountsTheLayersOfTheWorkerThatAttends) {
  const ModelConfig config = testing::MakeConfig(kModel);
  const Plan plan = MakePlan(config, {DType::kBf16},
                             {MakeWorker(DeviceKind::kGpu, 1), MakeWorker(DeviceKind::kNpu, 0)},
                             {.npu = NpuPolicy::kRequire})
                        .value();
  const auto bytes = [&](uint32_t worker, KvGroup group, DType dtype) {
    return KvBlockBytes(config, plan, worker, group, dtype, 16);
  };
  EXPECT_EQ(bytes(0, kGlobalGroup, DType::kF16), 0u);
  EXPECT_EQ(bytes(1, kGlobalGroup, DType::kF16), 16 * 2 * kLayerBytes);
  EXPECT_EQ(bytes(1, kWindowGroup, DType::kF16), 16 * 4 * kLayerBytes);
  EXPECT_EQ(bytes(1, kWindowGroup, DType::kQ8_0) * 32, 16 * 4 * kLayerBytes * 17);
  EXPECT_OK(MakeStepLimits(config, plan, Options())) << "the GPU's memory holds no KV";
  const auto weights = testing::RandomWeightSet(config);
  EXPECT_GT(WeightBytesOn(config, plan, 0, weights->tensors()), 0u);
  EXPECT_EQ(WeightBytesOn(config, plan, 1, weights->tensors()), 0u) << "it attends alone";
}

// A carve-out and what the system lends hold both; a quarter for KV would be too much.
TEST(StepSizingTest, WeightsOnAGpuLeaveLessForKv) {
  testing::SmallModel model = kModel;
  model.hidden_dim = 512;
  model.ffn_dim = 2048;
  const ModelConfig config = testing::MakeConfig(model);
  const auto weights = testing::RandomWeightSet(config);
  SizingOptions without = Options();
  without.max_sequences = without.max_rows = 64;
  SizingOptions with = without;
  with.weights = weights->tensors();
  const auto kv_bytes = [&config](const Plan& plan, const SizingOptions& options) {
    const StepLimits limits = MakeStepLimits(config, plan, options).value();
    uint64_t bytes = 0;
    for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
      bytes += limits.num_blocks[group] * KvBlockBytes(config, plan, 0, group, DType::kF16, 16);
    }
    return bytes;
  };
  const uint64_t weight_bytes = WeightBytesOn(config, GpuPlan(0), 0, weights->tensors());
  uint64_t all = 0;
  for (const PackedTensor& tensor : weights->tensors()) {
    for (const Shard& shard : tensor.shards) all += ShardBytes(tensor, shard);
  }
  EXPECT_EQ(weight_bytes, all);
  const uint64_t available = weight_bytes / 7 * 8;
  Plan plan = GpuPlan(available);
  EXPECT_GT(kv_bytes(plan, without) + weight_bytes, available) << "nothing is tested";
  EXPECT_LE(kv_bytes(plan, with) + weight_bytes + available / 32, available);
  EXPECT_GT(kv_bytes(plan, with), available / 20);
  EXPECT_THAT(MakeStepLimits(config, GpuPlan(weight_bytes / 2), with),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("MiB of weights")));
  // Weights in memory that a software driver shares are not counted: they were there before it.
  plan.workers[0].emulated = true;
  EXPECT_EQ(kv_bytes(plan, with), kv_bytes(plan, without));
  // All that is left counts, however much it is.
  SizingOptions many = with;
  many.max_rows = many.max_sequences = 64;
  const uint64_t budget = kv_bytes(GpuPlan(2 * weight_bytes), many);
  EXPECT_GT(budget, weight_bytes / 2) << "more than a quarter of the memory";
}

TEST(StepSizingTest, AnEncoderOnTheGpuLeavesLessForKv) {
  ModelConfig config = testing::MakeConfig(kModel);
  config.vision = VisionConfig{.image_size = 16,
                               .patch_size = 4,
                               .num_layers = 1,
                               .hidden_dim = 32,
                               .ffn_dim = 64,
                               .num_heads = 1,
                               .tokens_per_image = 4,
                               .text_hidden_dim = config.hidden_dim};
  constexpr uint64_t kEncoder = 1 << 20, kPicture = 16 * (24 * 32 + 6 * 96);
  Plan plan = GpuPlan(3 * kEncoder);
  SizingOptions options = Options();
  options.max_rows = options.max_sequences = 64;
  const auto blocks = [&] {
    return MakeStepLimits(config, plan, options).value().num_blocks[kGlobalGroup];
  };
  const uint64_t of_text = blocks();
  options.vision_bytes = kEncoder;
  EXPECT_EQ(blocks(), of_text) << "it runs elsewhere, or nowhere";
  plan.workers[0].stages.push_back(StageKind::kVision);
  EXPECT_EQ(blocks(), of_text) << "the decoder takes no pictures";
  plan.workers[0].takes_pictures = true;
  const uint64_t beside = blocks();
  EXPECT_LT(beside, of_text);
  // As much as if the memory were smaller by the two, but for the part that is for activations.
  plan = GpuPlan(3 * kEncoder - (kEncoder + kPicture) / 31 * 32);
  options.vision_bytes = 0;
  EXPECT_NEAR(static_cast<double>(beside), static_cast<double>(blocks()), 2);
}

TEST(StepSizingTest, PoolsThatWereAskedForAndDoNotFitAreRefusedWithTheSum) {
  const ModelConfig config = testing::MakeConfig(kModel);
  const auto weights = testing::RandomWeightSet(config);
  SizingOptions options = Options();
  options.weights = weights->tensors();
  options.kv_tokens = 4000;
  const uint64_t weight_bytes = WeightBytesOn(config, GpuPlan(0), 0, weights->tensors());
  const uint64_t kv = 250 * 16 * 2 * kLayerBytes + 44 * 16 * 4 * kLayerBytes;
  const uint64_t fits = (weight_bytes + kv) / 31 * 32 + 64;
  EXPECT_OK(MakeStepLimits(config, GpuPlan(fits), options));
  EXPECT_OK(MakeStepLimits(config, GpuPlan(0), options)) << "it knows no bound";
  const auto refused = MakeStepLimits(config, GpuPlan(fits - kv / 2), options);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("4000 tokens of KV do not fit gpu0: ")));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("for activations and code = ")));
}

TEST(StepSizingTest, ShortContextsNeedNoWindowBeyondThem) {
  testing::SmallModel model = kModel;
  model.context_len = 17;
  ASSERT_OK_AND_ASSIGN(const StepLimits limits,
                       MakeStepLimits(testing::MakeConfig(model), GpuPlan(0), Options()));
  EXPECT_EQ(limits.num_blocks[kGlobalGroup], 8u);
  EXPECT_EQ(limits.num_blocks[kWindowGroup], 8u);
}

TEST(StepSizingTest, RefusesWhatCannotBe) {
  const ModelConfig config = testing::MakeConfig(kModel);
  EXPECT_THAT(MakeStepLimits(config, GpuPlan(100'000), Options()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("gpu0")));
  SizingOptions options = Options();
  options.context_len = 1001;
  EXPECT_THAT(MakeStepLimits(config, GpuPlan(0), options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("context_len is 1001")));
  options = Options();
  options.block_tokens = 0;
  EXPECT_THAT(MakeStepLimits(config, GpuPlan(0), options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block_tokens is 0")));
}

}  // namespace
}  // namespace tandem::gateway
