// Bytes, operations and times of a dispatch, against sums done by hand.
#include "tools/kernel_report/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "services/gpu_worker/kernels/push_constants.h"
#include "tools/kernel_report/constant_names.h"
#include "tools/kernel_report/planned_model.h"

namespace tandem::report {
namespace {

using ::testing::HasSubstr;

constexpr StepLimits kLimits = {.max_rows = 64, .block_tokens = 16};

// A kernel's facts with constants by name.
KernelFacts FactsWith(gpu::KernelId kernel, const std::map<std::string, uint32_t>& constants) {
  KernelFacts facts{.name = "k", .kernel = kernel, .compiled = true, .waves_per_simd = 16};
  for (const auto& [id, name] : ConstantNames(gpu::Traits(kernel).spirv)) {
    if (const auto value = constants.find(name); value != constants.end()) {
      facts.constants[id] = value->second;
    }
  }
  facts.constants[gpu::kLocalSize] = 256;
  return facts;
}

template <typename Push>
Dispatch DispatchOf(const Push& push, uint32_t groups_x, uint32_t groups_y) {
  Dispatch dispatch{.groups_x = groups_x, .groups_y = groups_y};
  std::memcpy(dispatch.push.data(), &push, sizeof(push));
  return dispatch;
}

// 4,096 rows of 5,376 in q4_0: 18 bytes for 32 numbers.
constexpr double kRows = 4096, kColumns = 5376;
constexpr double kBytes = kRows * kColumns / 32 * 18;

LaunchWork MatvecWork(uint32_t sequences, uint32_t rows_a_pass) {
  const KernelFacts facts =
      FactsWith(gpu::KernelId::kMatvec, {{"WEIGHT_DTYPE", static_cast<uint32_t>(DType::kQ4_0)},
                                         {"ROWS", rows_a_pass},
                                         {"SPLIT_K", 1}});
  const gpu::MatvecPush push{.count = offsetof(StepHeader, num_rows),
                             .k_dim = static_cast<uint32_t>(kColumns),
                             .n_dim = static_cast<uint32_t>(kRows)};
  const PlannedStep step(kLimits, sequences, 1, 0);
  return WorkOf(DispatchOf(push, 16, 8), facts, step.batch(), DType::kF16);
}

TEST(LaunchWorkTest, AProductReadsItsMatrixOnce) {
  const LaunchWork work = MatvecWork(1, 1);
  EXPECT_EQ(kBytes, 12'386'304);
  EXPECT_EQ(work.weight_bytes, kBytes);
  EXPECT_EQ(work.cache_bytes, kBytes);
  EXPECT_EQ(work.macs, 22'020'096);
  EXPECT_EQ(work.useful_flops, 44'040'192);
  EXPECT_EQ(work.kv_bytes, 0);
}

TEST(LaunchWorkTest, RowsTakeWholePasses) {
  const LaunchWork work = MatvecWork(3, 2);
  EXPECT_EQ(work.weight_bytes, kBytes) << "from memory once";
  EXPECT_EQ(work.cache_bytes, 2 * kBytes) << "from the cache in each pass";
  EXPECT_EQ(work.macs, 4 * 22'020'096.0) << "the second pass has an empty row";
  EXPECT_EQ(work.useful_flops, 3 * 44'040'192.0);
}

TEST(LaunchWorkTest, DecodingReadsTheWindowsKeysAndValues) {
  const KernelFacts facts = FactsWith(gpu::KernelId::kDecode, {{"HEAD_DIM", 128}});
  for (const auto& [window, seen] : {std::pair{0u, 1001.0}, {512u, 512.0}}) {
    const gpu::DecodePush push{.num_heads = 32, .num_kv_heads = 16, .window = window};
    const PlannedStep step(kLimits, 2, 1, 1000);
    const LaunchWork work = WorkOf(DispatchOf(push, 64, 2), facts, step.batch(), DType::kF16);
    // Two sequences; K and V; 16 heads of 128 float16.
    EXPECT_EQ(work.kv_bytes, 2 * seen * 2 * 16 * 128 * 2);
    // Scores and sums: a multiply-add each for every position, head and dimension.
    EXPECT_EQ(work.macs, 2 * seen * 2 * 32 * 128);
    EXPECT_EQ(work.useful_flops, 2 * work.macs);
  }
}

TEST(LaunchWorkTest, APromptsRowsSeeThoseBefore) {
  const KernelFacts facts =
      FactsWith(gpu::KernelId::kTiledRows,
                {{"HEAD_DIM", 128}, {"QUERIES", 2}, {"POSITIONS", 32}, {"ROW_BLOCKS", 1}});
  const gpu::TiledPush push{.num_heads = 32, .num_kv_heads = 16};
  const PlannedStep step(kLimits, 1, 64, 0);
  const LaunchWork work = WorkOf(DispatchOf(push, 16, 8), facts, step.batch(), DType::kF16);
  EXPECT_EQ(work.useful_flops, 4 * (64 * 65 / 2.0) * 32 * 128);
  EXPECT_EQ(work.kv_bytes, 64 * 2 * 16 * 128 * 2.0);
  EXPECT_GE(work.macs, work.useful_flops / 2) << "tiles are whole";
}

TEST(PredictionTest, PartsOverlapInPart) {
  const Limits limits = {.memory = 3, .cache = 0, .loop = 4, .latency = 0};
  EXPECT_EQ(limits.Longest(), 4);
  EXPECT_EQ(limits.Combined(), 5);
}

TEST(PredictionTest, ADispatchIsBoundByItsLongestPart) {
  const Chip chip = *FindChip("780M");
  KernelFacts facts = FactsWith(gpu::KernelId::kMatvec, {});
  LaunchWork work{.weight_bytes = kBytes, .subgroups = 96, .is_phase = true, .is_counted = true};
  // 89.6 GB/s by 0.85.
  LaunchTime time = TimeOf(work, facts, chip);
  EXPECT_EQ(time.bound, "memory");
  EXPECT_NEAR(time.limits.memory, 12'386'304 / 76.16e9, 1e-12);
  EXPECT_EQ(time.seconds, time.limits.Combined());
  EXPECT_EQ(time.before, chip.counter_seconds);
  // A loop of 100 matrix instructions, 32 clocks each; 24 SIMDs with four subgroups each, which
  // make 1,000 passes.
  facts.assembly.loop.matrix = 100;
  facts.assembly.loop.vector = 100;
  facts.assembly.loop.matrix_macs = facts.assembly.loop.macs = 100 * 16 * 16 * 16;
  facts.loop = ClocksOf(facts.assembly.loop, chip.costs);
  work.macs = 96 * 1000 * facts.assembly.loop.macs;
  work.is_counted = false;
  time = TimeOf(work, facts, chip);
  EXPECT_EQ(time.bound, "matrix unit");
  EXPECT_NEAR(time.limits.loop, 4 * 1000 * 3200 / chip.clock_hz, 1e-9);
  EXPECT_EQ(time.before, chip.barrier_seconds);
}

TEST(PredictionTest, AStepIsTheSumOfItsDispatches) {
  const Chip chip = *FindChip("8060S");
  const std::vector<KernelFacts> facts = {FactsWith(
      gpu::KernelId::kMatvec,
      {{"WEIGHT_DTYPE", static_cast<uint32_t>(DType::kQ4_0)}, {"ROWS", 1}, {"SPLIT_K", 1}})};
  const gpu::MatvecPush push{.count = offsetof(StepHeader, num_rows),
                             .k_dim = static_cast<uint32_t>(kColumns),
                             .n_dim = static_cast<uint32_t>(kRows)};
  Dispatch first = DispatchOf(push, 16, 1), second = first;
  second.after_barrier = true;
  const PlannedStep planned(kLimits, 1, 1, 0);
  const StepPrediction step =
      PredictStep("tg", 1, std::vector{first, second}, facts, planned.batch(), DType::kF16, chip);
  EXPECT_EQ(step.dispatches, 2u);
  EXPECT_EQ(step.bytes, 2 * kBytes);
  EXPECT_EQ(step.between, chip.barrier_seconds) << "nothing lies before the first";
  ASSERT_EQ(step.kernels.size(), 1u);
  EXPECT_NEAR(step.seconds, step.kernels[0].seconds + step.between, 1e-12);
  EXPECT_LE(step.at_best, step.seconds);
  EXPECT_GE(step.at_best, step.bytes / chip.ReadBandwidth());
  EXPECT_NEAR(step.ByteShare(chip), 2 * kBytes / 256e9 / step.seconds, 1e-9);
}

TEST(ChipTest, IsFoundByNameAndByTitle) {
  EXPECT_EQ(FindChip("phoenix")->title, "Radeon 780M");
  EXPECT_EQ(FindChip("780m")->name, "phoenix");
  EXPECT_EQ(FindChip("NVIDIA H200")->name, "h200");
  const auto unknown = FindChip("rx9070");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  for (const char* name : {"rx9070", "780M", "890M", "8060S", "H200"}) {
    EXPECT_THAT(std::string(unknown.status().message()), HasSubstr(name));
  }
}

TEST(ChipTest, HasTheMatrixRateOfItsDataSheet) {
  // 512 float16 operations a clock and CU: 12 x 2.7 GHz x 512 and 40 x 2.9 GHz x 512.
  EXPECT_NEAR(FindChip("780M")->MatrixFlops(), 16.6e12, 0.1e12);
  EXPECT_NEAR(FindChip("8060S")->MatrixFlops(), 59.4e12, 0.1e12);
  for (const Chip& chip : AllChips()) EXPECT_FALSE(chip.source.empty()) << chip.name;
}

}  // namespace
}  // namespace tandem::report
