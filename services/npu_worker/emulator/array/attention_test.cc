// Attention's control code on an emulated array, with the cores' own functions, against float64.
#include "services/npu_worker/control/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/emulator/array/array_test_support.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/kernels/aie_host/attention_cores.h"

namespace tandem::npu::emulator {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr uint32_t kGuard = 0x7FC07FC1;  // two NaNs
constexpr double kBound = 4e-2;          // mean relative L1
constexpr ArrayShape kNpu4 = {};
constexpr ArrayShape kNpu1 = {.generation = 3, .num_columns = 4};

struct Range {
  uint32_t first_position, num_rows, window, cache_positions;
};

// The rows of a prompt's chunk, over a cache whose other slots are NaN.
class Chunk {
 public:
  Chunk(uint32_t head_dim, uint32_t num_heads, uint32_t num_kv_heads, const Range& range)
      : job_{.head_dim = head_dim,
             .num_heads = num_heads,
             .num_kv_heads = num_kv_heads,
             .num_rows = range.num_rows,
             .first_position = range.first_position,
             .window = range.window,
             .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
             .cache_positions = range.cache_positions,
             .queries = {.argument = 0},
             .keys = {.argument = 1},
             .values = {.argument = 1,
                        .offset = num_kv_heads * range.cache_positions * head_dim * 2},
             .output = {.argument = 2},
             .scratch = {.argument = 3}} {
    const size_t padded_rows = (range.num_rows + 63) / 64 * 64;
    queries_.resize(padded_rows * num_heads * head_dim / 2);
    for (bfloat16& value : Numbers(queries_)) value = bfloat16(normal_(random_));
    const size_t slab = size_t{num_kv_heads} * range.cache_positions * head_dim;
    cache_.assign(slab, kGuard);  // keys and values
    const uint32_t end = range.first_position + range.num_rows;
    // Positions that a ring still holds.
    const uint32_t begin = end > range.cache_positions ? end - range.cache_positions : 0;
    for (uint32_t position = begin; position < end; ++position) {
      for (uint32_t head = 0; head < num_kv_heads; ++head) {
        const size_t at = Slot(head, position);
        for (size_t d = 0; d < head_dim; ++d) {
          Numbers(cache_)[at + d] = bfloat16(normal_(random_));
          Numbers(cache_)[slab + at + d] = bfloat16(normal_(random_));
        }
      }
    }
    output_.assign((range.num_rows + 3) * size_t{num_heads} * head_dim / 2, kGuard);
    scratch_.assign(size_t{64} * head_dim / 2, 0);
  }

  AttentionJob& job() { return job_; }
  absl::Status Run(const ArrayShape& array) {
    DeviceMemory memory;
    const uint64_t buffers[] = {memory.Add(queries_), memory.Add(cache_), memory.Add(output_),
                                memory.Add(scratch_)};
    job_.array = array;
    const auto design = FindDesign("attention_" + std::to_string(job_.head_dim), array);
    if (!design.ok()) return design.status();
    const auto code = BuildAttention(job_);
    if (!code.ok()) return code.status();
    EmulatedArray emulated(array, *design);
    const AddressSpace::View view(memory.space());
    return emulated.Run(code->words(), buffers, view);
  }

  // Sum of the errors over the sum of the magnitudes.
  double Error() {
    double error = 0, magnitude = 0;
    const size_t dim = job_.head_dim;
    for (uint32_t row = 0; row < job_.num_rows; ++row) {
      for (uint32_t head = 0; head < job_.num_heads; ++head) {
        const std::vector<double> expected = Reference(row, head);
        const size_t at = (size_t{row} * job_.num_heads + head) * dim;
        for (size_t d = 0; d < dim; ++d) {
          error += std::fabs(expected[d] - Numbers(output_)[at + d]);
          magnitude += std::fabs(expected[d]);
        }
      }
    }
    return error / magnitude;
  }
  bool GuardsHold() const {
    const size_t written = size_t{job_.num_rows} * job_.num_heads * job_.head_dim / 2;
    return std::all_of(output_.begin() + static_cast<ptrdiff_t>(written), output_.end(),
                       [](uint32_t word) { return word == kGuard; });
  }
  const std::vector<uint32_t>& output() const { return output_; }

 private:
  static std::span<bfloat16> Numbers(std::vector<uint32_t>& words) {
    return {reinterpret_cast<bfloat16*>(words.data()), 2 * words.size()};
  }
  size_t Slot(uint32_t kv_head, uint32_t position) const {
    return (size_t{kv_head} * job_.cache_positions + position % job_.cache_positions) *
           job_.head_dim;
  }
  std::vector<double> Reference(uint32_t row, uint32_t head) {
    const size_t dim = job_.head_dim;
    const uint32_t position = job_.first_position + row;
    const uint32_t kv_head = head / (job_.num_heads / job_.num_kv_heads);
    const uint32_t first =
        job_.window == 0 || position < job_.window ? 0 : position + 1 - job_.window;
    const size_t slab = cache_.size();
    const auto query = Numbers(queries_).subspan((size_t{row} * job_.num_heads + head) * dim, dim);
    std::vector<double> weights;
    double largest = -1e300;
    for (uint32_t j = first; j <= position; ++j) {
      double score = 0;
      for (size_t d = 0; d < dim; ++d)
        score += double{query[d]} * Numbers(cache_)[Slot(kv_head, j) + d];
      weights.push_back(score * job_.scale);
      largest = std::max(largest, weights.back());
    }
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    std::vector<double> result(dim);
    for (uint32_t j = first; j <= position; ++j) {
      for (size_t d = 0; d < dim; ++d) {
        result[d] += weights[j - first] / sum * Numbers(cache_)[slab + Slot(kv_head, j) + d];
      }
    }
    return result;
  }

  std::mt19937 random_{17};
  std::normal_distribution<float> normal_;
  AttentionJob job_;
  std::vector<uint32_t> queries_;
  std::vector<uint32_t> cache_;
  std::vector<uint32_t> output_;
  std::vector<uint32_t> scratch_;
};

class PromptAttentionTest : public ::testing::TestWithParam<std::tuple<ArrayShape, uint32_t>> {};

TEST_P(PromptAttentionTest, RaggedRangesAndWindowsAreWithinTheBoundAndGuardsHold) {
  const auto [array, head_dim] = GetParam();
  const Range ranges[] = {{0, 1, 0, 32},       // a row that sees itself
                          {0, 61, 0, 64},      // the beginning of a prompt
                          {45, 17, 0, 96},     // rows after a cached prefix, across a tile
                          {31, 130, 0, 256},   // several items a column
                          {0, 100, 1, 128},    // windows: one position,
                          {200, 33, 16, 96},   // half a tile, in a ring that wraps,
                          {95, 70, 33, 160},   // more than a tile,
                          {10, 50, 512, 64}};  // longer than the prompt
  double worst = 0;
  for (const Range& range : ranges) {
    for (const auto& [heads, kv_heads] : {std::pair{2u, 1u}, {4u, 1u}, {3u, 3u}}) {
      Chunk chunk(head_dim, heads, kv_heads, range);
      ASSERT_OK(chunk.Run(array)) << range.first_position << " " << range.num_rows;
      const double error = chunk.Error();
      EXPECT_LE(error, kBound) << "rows " << range.num_rows << " from " << range.first_position
                               << ", window " << range.window << ", heads " << heads;
      EXPECT_TRUE(chunk.GuardsHold());
      worst = std::max(worst, error);
    }
  }
  std::printf("largest error %.5f\n", worst);
}

INSTANTIATE_TEST_SUITE_P(AllArrays, PromptAttentionTest,
                         ::testing::Combine(::testing::Values(kNpu1, kNpu4),
                                            ::testing::Values(64u, 128u, 256u)),
                         [](const auto& instance) {
                           return (std::get<0>(instance.param).generation == 3 ? "npu1_"
                                                                               : "npu4_") +
                                  std::to_string(std::get<1>(instance.param));
                         });

// More tasks than a queue holds: 64 tiles each, and control code waits for the first.
TEST(AttentionTest, RangesBeyondTheQueueAreTaken) {
  Chunk chunk(64, 1, 1, {9000, 5, 0, 9024});
  ASSERT_OK(chunk.Run(kNpu1));
  EXPECT_LE(chunk.Error(), kBound);
}

TEST(AttentionTest, LargeScoresDoNotOverflow) {
  Chunk chunk(64, 2, 1, {0, 40, 0, 64});
  chunk.job().scale = 1000;
  ASSERT_OK(chunk.Run(kNpu4));
  EXPECT_TRUE(std::isfinite(chunk.Error()));
}

TEST(AttentionTest, ACacheThatEndsTooEarlyFailsAndWritesNothing) {
  Chunk chunk(128, 2, 1, {0, 64, 0, 64});
  const std::vector<uint32_t> before = chunk.output();
  chunk.job().cache_positions = 96;
  chunk.job().first_position = 32;
  EXPECT_THAT(chunk.Run(kNpu4),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("from memory, descriptor")));
  EXPECT_EQ(chunk.output(), before);
}

TEST(AttentionTest, JobsThatDoNotFitAreRefusedByName) {
  Chunk chunk(64, 2, 1, {0, 40, 0, 64});
  const auto refuses = [&](void (*change)(AttentionJob&), const char* text) {
    AttentionJob job = chunk.job();
    change(job);
    EXPECT_THAT(BuildAttention(job).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuses([](AttentionJob& job) { job.head_dim = 96; }, "heads of 96");
  refuses([](AttentionJob& job) { job.num_heads = 0; }, "0 heads over 1");
  refuses([](AttentionJob& job) { job.num_kv_heads = 0; }, "2 heads over 0");
  refuses([](AttentionJob& job) { job.num_heads = 3, job.num_kv_heads = 2; }, "3 heads over 2");
  refuses([](AttentionJob& job) { job.num_rows = 0; }, "0 rows");
  refuses([](AttentionJob& job) { job.first_position = 1u << 31; }, "position 2147483648");
  refuses([](AttentionJob& job) { job.cache_positions = 40; }, "a cache of 40 positions");
  refuses([](AttentionJob& job) { job.cache_positions = 32; }, "64 or more");
  refuses([](AttentionJob& job) { job.cache_positions = 1u << 26; }, "4 GiB");
  refuses(
      [](AttentionJob& job) {
        job.first_position = 1000;
        job.window = 500;
        job.cache_positions = 512;
      },
      "576 or more");
}

}  // namespace
}  // namespace tandem::npu::emulator
