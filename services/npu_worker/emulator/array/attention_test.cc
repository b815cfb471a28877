// Attention's control code on an emulated array, with the cores' own functions, against float64.
#include "services/npu_worker/control/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  uint32_t first_position, num_rows, window;
  uint32_t cache_positions;  // a ring of so many,
  uint32_t block = 0;        // or, if this is not 0, blocks of it that are not side by side
  uint32_t picture_first = kNoPictureRows;
  uint32_t distance = 0;  // of one block to the next; 0: anywhere
};

// The rows of a prompt's chunk, over a cache whose other slots are NaN.
class Chunk {
 public:
  Chunk(uint32_t head_dim, uint32_t num_heads, uint32_t num_kv_heads, const Range& range)
      : run_{.num_rows = range.num_rows,
             .first_position = range.first_position,
             .picture_first = range.picture_first},
        job_{.head_dim = head_dim,
             .num_heads = num_heads,
             .num_kv_heads = num_kv_heads,
             .window = range.window,
             .scale = 1 / std::sqrt(static_cast<float>(head_dim)),
             .cache_slots = range.cache_positions + kZeroSlots,
             .queries = {.argument = 0},
             .keys = {.argument = 1},
             .values = {.argument = 1, .offset = num_kv_heads * job_.cache_slots * head_dim * 2},
             .output = {.argument = 2},
             .scratch = {.argument = 3}} {
    const size_t padded_rows = range.num_rows + 64;
    queries_.resize(padded_rows * num_heads * head_dim / 2);
    for (bfloat16& value : Numbers(queries_)) value = bfloat16(normal_(random_));
    Place(range);
    const size_t slab = size_t{num_kv_heads} * job_.cache_slots * head_dim;
    cache_.assign(slab, kGuard);  // keys and values
    for (uint32_t head = 0; head < num_kv_heads; ++head) {
      for (uint32_t position = begin_; position < run_.first_position + run_.num_rows; ++position) {
        const size_t at = Slot(head, position);
        for (size_t d = 0; d < head_dim; ++d) {
          Numbers(cache_)[at + d] = bfloat16(normal_(random_));
          Numbers(cache_)[slab + at + d] = bfloat16(normal_(random_));
        }
      }
      const size_t end = size_t{head + 1} * job_.cache_slots * head_dim;
      for (size_t i = end - size_t{kZeroSlots} * head_dim; i < end; ++i) {
        Numbers(cache_)[i] = Numbers(cache_)[slab + i] = bfloat16(0.0f);
      }
    }
    output_.assign((range.num_rows + 3) * size_t{num_heads} * head_dim / 2, kGuard);
    scratch_.assign(size_t{64} * head_dim / 2, 0);
  }

  AttentionJob& job() { return job_; }
  AttentionRun run() const {
    AttentionRun run = run_;
    run.extents = extents_;
    return run;
  }
  absl::Status Run(const ArrayShape& array) {
    DeviceMemory memory;
    const uint64_t buffers[] = {memory.Add(queries_), memory.Add(cache_), memory.Add(output_),
                                memory.Add(scratch_)};
    job_.array = array;
    const auto design = DesignUnderTest("attention_" + std::to_string(job_.head_dim), array);
    if (!design.ok()) return design.status();
    const AttentionRun rows = run();
    std::vector<Transaction> code;
    absl::Status built = BuildAttention(job_, {&rows, 1}, max_bytes_, code);
    if (!built.ok()) return built;
    num_transactions_ = code.size();
    EmulatedArray emulated(array, *design);
    const AddressSpace::View view(memory.space());
    for (const Transaction& part : code) {
      absl::Status status = emulated.Run(part.words(), buffers, view);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // From now on computes one row of the chunk, and forgets the cache's blocks that it does not see.
  void KeepOnly(uint32_t row) {
    const uint32_t first_position = first_of_chunk_ + row;
    run_.first_row = row;
    run_.num_rows = 1;
    run_.first_position = first_position;
    const uint32_t first = first_position + 1 - std::min(first_position + 1, job_.window);
    while (extents_.front().first_position + extents_.front().num_positions <= first) {
      extents_.erase(extents_.begin());
    }
    std::ranges::fill(output_, kGuard);
  }
  void set_max_bytes(uint32_t max_bytes) { max_bytes_ = max_bytes; }
  size_t num_transactions() const { return num_transactions_; }

  // Sum of the errors over the sum of the magnitudes.
  double Error() {
    double error = 0, magnitude = 0;
    const size_t dim = job_.head_dim;
    for (uint32_t row = 0; row < run_.num_rows; ++row) {
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
    const size_t written = size_t{run_.num_rows} * job_.num_heads * job_.head_dim / 2;
    return std::all_of(output_.begin() + static_cast<ptrdiff_t>(written), output_.end(),
                       [](uint32_t word) { return word == kGuard; });
  }
  const std::vector<uint32_t>& output() const { return output_; }

 private:
  static std::span<bfloat16> Numbers(std::vector<uint32_t>& words) {
    return {reinterpret_cast<bfloat16*>(words.data()), 2 * words.size()};
  }
  // Decides which slots positions are in, and from which on the cache has them.
  void Place(const Range& range) {
    const uint32_t end = range.first_position + range.num_rows;
    const uint32_t size = range.block == 0 ? range.cache_positions : range.block;
    if (range.block == 0) {
      begin_ = end > size ? end - size : 0;
    } else {
      const uint32_t first = range.window == 0 || range.first_position < range.window
                                 ? 0
                                 : range.first_position + 1 - range.window;
      begin_ = std::min(first, range.picture_first) / size * size;
    }
    std::vector<uint32_t> places(range.cache_positions / size);
    for (uint32_t i = 0; i < places.size(); ++i) places[i] = i * size;
    std::ranges::shuffle(places, random_);
    for (uint32_t i = 0; range.distance != 0 && i < places.size(); ++i) {
      places[i] = i * range.distance;
    }
    for (uint32_t position = begin_; position < end; position += size - position % size) {
      const uint32_t place = places[position / size % places.size()];
      extents_.push_back({position, size - position % size, place + position % size});
    }
  }
  size_t Slot(uint32_t kv_head, uint32_t position) const {
    auto extent = extents_.end() - 1;
    while (extent->first_position > position) --extent;
    return (size_t{kv_head} * job_.cache_slots + extent->first_slot + position -
            extent->first_position) *
           job_.head_dim;
  }
  std::vector<double> Reference(uint32_t row, uint32_t head) {
    const size_t dim = job_.head_dim;
    const uint32_t position = run_.first_position + row;
    const uint32_t kv_head = head / (job_.num_heads / job_.num_kv_heads);
    uint32_t first = job_.window == 0 || position < job_.window ? 0 : position + 1 - job_.window;
    uint32_t last = position;
    if (run_.picture_first != kNoPictureRows) {
      first = std::min(first, run_.picture_first);
      last = run_.first_position + run_.num_rows - 1;
    }
    const auto query = Numbers(queries_).subspan((size_t{row} * job_.num_heads + head) * dim, dim);
    const std::span<bfloat16> keys = Numbers(cache_);
    const std::span<bfloat16> values = keys.subspan(cache_.size());
    std::vector<double> weights;
    double largest = -1e300;
    for (uint32_t j = first; j <= last; ++j) {
      const auto key = keys.subspan(Slot(kv_head, j), dim);
      double score = 0;
      for (size_t d = 0; d < dim; ++d) score += double{query[d]} * key[d];
      weights.push_back(score * job_.scale);
      largest = std::max(largest, weights.back());
    }
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    std::vector<double> result(dim);
    for (uint32_t j = first; j <= last; ++j) {
      const auto value = values.subspan(Slot(kv_head, j), dim);
      const double weight = weights[j - first] / sum;
      for (size_t d = 0; d < dim; ++d) result[d] += weight * value[d];
    }
    return result;
  }

  std::mt19937 random_{17};
  std::normal_distribution<float> normal_;
  AttentionRun run_;
  AttentionJob job_;
  std::vector<CacheExtent> extents_;
  const uint32_t first_of_chunk_ = run_.first_position;
  uint32_t begin_ = 0;  // the first position that the cache has
  uint32_t max_bytes_ = ~0u;
  size_t num_transactions_ = 0;
  std::vector<uint32_t> queries_;
  std::vector<uint32_t> cache_;
  std::vector<uint32_t> output_;
  std::vector<uint32_t> scratch_;
};

class PromptAttentionTest : public ::testing::TestWithParam<std::tuple<ArrayShape, uint32_t>> {};

TEST_P(PromptAttentionTest, RaggedRangesAndWindowsAreWithinTheBoundAndGuardsHold) {
  const auto [array, head_dim] = GetParam();
  const Range ranges[] = {
      {0, 1, 0, 32},             // a row that sees itself
      {0, 61, 0, 64},            // the beginning of a prompt
      {45, 17, 0, 96},           // rows after a cached prefix, across a tile
      {31, 130, 0, 256},         // several items a column
      {0, 100, 1, 128},          // windows: one position,
      {200, 33, 16, 96},         // half a tile, in a ring that wraps,
      {95, 70, 33, 160},         // more than a tile,
      {10, 50, 512, 64},         // longer than the prompt
      {45, 17, 0, 96, 16},       // blocks that are not side by side: half a tile,
      {100, 40, 33, 192, 8},     // less, with a window,
      {60, 40, 0, 132, 12},      // and across tiles
      {5, 30, 17, 64, 1},        // of one position: more tasks a tile than a queue holds,
      {30, 40, 0, 105, 7},       // and of a few
      {70, 20, 33, 96, 16, 66},  // a picture's last rows, seen from 66 on,
      {40, 64, 10, 128, 32, 40},
      {100, 61, 0, 512, 16, kNoPictureRows, 48}};  // and a whole one, far beyond its window
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

// Fragments of 16 positions: the transactions stay below their limit, and a wave has fewer columns.
TEST(AttentionTest, ControlCodeIsCutWhereItsLimitIsReached) {
  Chunk whole(64, 2, 1, {900, 70, 0, 1024, 16});
  ASSERT_OK(whole.Run(kNpu4));
  EXPECT_EQ(whole.num_transactions(), 1u);
  Chunk cut(64, 2, 1, {900, 70, 0, 1024, 16});
  const auto limit = static_cast<uint32_t>(AttentionCodeBytes(970, 16));
  cut.set_max_bytes(limit);
  ASSERT_OK(cut.Run(kNpu4));
  EXPECT_GT(cut.num_transactions(), 1u);
  EXPECT_EQ(cut.output(), whole.output());
  cut.set_max_bytes(limit / 2);
  EXPECT_THAT(cut.Run(kNpu4), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("column")));
}

// The same row alone and among others, over a cache whose blocks before the window are gone.  In block
// floating point (npu4) eight positions' values share an exponent, so a row's last bits depend on the
// rows behind it in its own sequence: there it is the last row that is compared.
TEST(AttentionTest, ARowsBitsDoNotDependOnWhatIsBesideIt) {
  for (const ArrayShape& array : {kNpu1, kNpu4}) {
    Chunk chunk(64, 4, 2, {90, 40, 33, 144, 16});
    ASSERT_OK(chunk.Run(array));
    const std::vector<uint32_t> together = chunk.output();
    const size_t words = size_t{4} * 64 / 2;
    for (const uint32_t row : {0u, 7u, 23u, 39u}) {
      if (array == kNpu4 && row != 39) continue;
      chunk.KeepOnly(row);
      ASSERT_OK(chunk.Run(array));
      const auto from = static_cast<ptrdiff_t>(row * words);
      EXPECT_TRUE(std::equal(together.begin() + from, together.begin() + from + words,
                             chunk.output().begin() + from))
          << row << " on generation " << array.generation;
    }
  }
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
  chunk.job().values.offset *= 2;
  EXPECT_THAT(chunk.Run(kNpu4),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("from memory, descriptor")));
  EXPECT_EQ(chunk.output(), before);
}

TEST(AttentionTest, JobsThatDoNotFitAreRefusedByName) {
  Chunk chunk(64, 2, 1, {0, 40, 0, 64});
  const auto refuses = [&](void (*change)(AttentionJob&, AttentionRun&), const char* text) {
    AttentionJob job = chunk.job();
    AttentionRun run = chunk.run();
    change(job, run);
    EXPECT_THAT(BuildAttention(job, {&run, 1}).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refuses([](auto& job, auto&) { job.head_dim = 96; }, "heads of 96");
  refuses([](auto& job, auto&) { job.num_heads = 0; }, "0 heads over 1");
  refuses([](auto& job, auto&) { job.num_kv_heads = 0; }, "2 heads over 0");
  refuses([](auto& job, auto&) { job.num_heads = 3, job.num_kv_heads = 2; }, "3 heads over 2");
  refuses([](auto&, auto& run) { run.num_rows = 0; }, "0 rows");
  refuses([](auto&, auto& run) { run.first_position = 1u << 31; }, "position 2147483648");
  refuses([](auto&, auto& run) { run.first_row = 1u << 29; }, "4 GiB");
  refuses([](auto& job, auto&) { job.cache_slots = 8; }, "a cache of 8 slots");
  refuses([](auto& job, auto&) { job.cache_slots = 1u << 26; }, "4 GiB");
  refuses([](auto& job, auto&) { job.cache_slots = 95; }, "the cache has 63 slots");
  refuses([](auto&, auto& run) { run.extents = {}; }, "position 0 lies in no extent");
  refuses([](auto&, auto& run) { run.num_rows = 70; }, "position 64 lies in no extent");
  refuses(
      [](auto&, auto& run) {
        static constexpr CacheExtent kHole[] = {{0, 16, 0}, {32, 32, 32}};
        run.extents = kHole;
      },
      "the one before ends at 16");
  refuses(
      [](auto& job, auto& run) {
        static constexpr CacheExtent kLate = {16, 48, 0};
        job.window = 30;
        run.first_position = 44;
        run.num_rows = 1;
        run.extents = {&kLate, 1};
      },
      "position 15 lies in no extent");
}

}  // namespace
}  // namespace tandem::npu::emulator
