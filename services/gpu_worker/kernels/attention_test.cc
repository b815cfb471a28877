// Cache append and attention against the reference, over scattered blocks.
#include <cmath>
#include <numeric>

#include "services/common/base/half.h"
#include "services/common/reference/ops.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"

namespace tandem::gpu {
namespace {

struct Case {
  uint32_t num_heads, num_kv_heads, head_dim, block_tokens, window, position, rows;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.num_heads << " heads of " << c.head_dim << " on " << c.num_kv_heads
             << ", blocks of " << c.block_tokens << ", window " << c.window << ", rows "
             << c.position << " + " << c.rows;
}

class AttentionTest : public KernelTest, public ::testing::WithParamInterface<Case> {
 protected:
  // The cache's blocks lie in reverse order; one more than needed is there.
  static uint32_t NumBlocks(const Case& c) {
    return (c.position + c.rows - 1) / c.block_tokens + 2;
  }
  static uint32_t BlockOf(const Case& c, uint32_t index) { return NumBlocks(c) - 1 - index; }
  static size_t VectorIndex(const Case& c, uint32_t position, uint32_t kv_head) {
    return (size_t{BlockOf(c, position / c.block_tokens)} * c.num_kv_heads + kv_head) *
               c.block_tokens +
           position % c.block_tokens;
  }
  // Rows [position, position + rows) of one sequence.
  DeviceArray StepOf(const Case& c) const {
    DeviceArray step = MakeStep(c.rows, {}, 1, c.position);
    const auto words = step.as<uint32_t>();
    const size_t table = words.size() - (c.position + c.rows);
    for (uint32_t i = 0; i * c.block_tokens < c.position + c.rows; ++i) {
      words[table + i] = BlockOf(c, i);
      // Blocks that no row sees any more are gone.
      if (c.window != 0 && (i + 1) * c.block_tokens + c.window <= c.position + 1) {
        words[table + i] = kNoBlock;
      }
    }
    return step;
  }
  AttentionPush Push(const Case& c, const DeviceArray& step, const DeviceArray& q,
                     const DeviceArray& k, const DeviceArray& v, const DeviceArray& out) const {
    return {.step = step.address(),
            .q = q.address(),
            .k_cache = k.address(),
            .v_cache = v.address(),
            .destination = out.address(),
            .num_heads = c.num_heads,
            .num_kv_heads = c.num_kv_heads,
            .block_tokens = c.block_tokens,
            .group = c.window != 0 ? kWindowGroup : kGlobalGroup,
            .window = c.window,
            .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))};
  }
};

TEST_P(AttentionTest, MatchesTheReferenceAndReadsOnlyWhatARowSees) {
  const Case& c = GetParam();
  SCOPED_TRACE(c);
  const uint32_t end = c.position + c.rows;
  const size_t cache_size = size_t{NumBlocks(c)} * c.num_kv_heads * c.block_tokens * c.head_dim;
  const std::vector<uint16_t> q_halves =
      testing::FloatsToHalves(RandomFloats(size_t{c.rows} * c.num_heads * c.head_dim, 1));
  const std::vector<uint16_t> k_halves =
      testing::FloatsToHalves(RandomFloats(size_t{end} * c.num_kv_heads * c.head_dim, 2));
  const std::vector<uint16_t> v_halves =
      testing::FloatsToHalves(RandomFloats(size_t{end} * c.num_kv_heads * c.head_dim, 3));
  // NaN wherever no row may look.
  std::vector<uint16_t> k_cache(cache_size, 0x7E00), v_cache(cache_size, 0x7E00);
  const uint32_t first = c.window != 0 && c.position + 1 > c.window ? c.position + 1 - c.window : 0;
  for (uint32_t p = first; p < end; ++p) {
    for (uint32_t h = 0; h < c.num_kv_heads; ++h) {
      const size_t from = (size_t{p} * c.num_kv_heads + h) * c.head_dim;
      const size_t to = VectorIndex(c, p, h) * c.head_dim;
      std::copy_n(k_halves.begin() + from, c.head_dim, k_cache.begin() + to);
      std::copy_n(v_halves.begin() + from, c.head_dim, v_cache.begin() + to);
    }
  }
  const DeviceArray step = StepOf(c), q(device(), q_halves), k(device(), k_cache),
                    v(device(), v_cache), out(device(), q_halves.size() * 2);
  const uint64_t bytes = k_cache.size() * 2;
  const uint32_t bucket = std::bit_ceil(c.rows);
  Run({AttentionLaunch(tuning(), Push(c, step, q, k, v, out), c.head_dim, bytes, bucket)});
  EXPECT_TRUE(out.Intact());
  const DeviceArray same(device(), q_halves.size() * 2);
  Run({AttentionLaunch(ByAddress(), Push(c, step, q, k, v, same), c.head_dim, bytes, bucket)});
  EXPECT_EQ(0, std::memcmp(same.data().data(), out.data().data(), out.data().size()))
      << "bits do not depend on how they are read";

  ModelConfig config;
  config.num_heads = c.num_heads;
  config.num_kv_heads = c.num_kv_heads;
  config.head_dim = c.head_dim;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  const auto keys = testing::HalvesToFloats(k_halves), values = testing::HalvesToFloats(v_halves),
             queries = testing::HalvesToFloats(q_halves),
             actual = testing::HalvesToFloats(out.as<uint16_t>());
  const size_t width = size_t{c.num_heads} * c.head_dim, kv = size_t{c.num_kv_heads} * c.head_dim;
  for (uint32_t row = 0; row < c.rows; ++row) {
    const uint32_t last = c.position + row;
    std::vector<const float*> seen_keys, seen_values;
    for (uint32_t p = c.window != 0 && last + 1 > c.window ? last + 1 - c.window : 0; p <= last;
         ++p) {
      seen_keys.push_back(keys.data() + p * kv);
      seen_values.push_back(values.data() + p * kv);
    }
    std::vector<float> expected(width);
    reference::AttendRow(config, std::span(queries).subspan(row * width, width), seen_keys,
                         seen_values, expected);
    // Scores of order ten, good to a few units each, go through exp; sums of n weights that add
    // to one; values of at most five; one rounding to float16.
    const double n = static_cast<double>(seen_keys.size() + c.head_dim);
    const double bound = 5 * (64 + 4 * std::sqrt(n)) * testing::kEpsilonF32;
    ASSERT_TRUE(testing::IsNear(std::span(actual).subspan(row * width, width), expected,
                                bound + 0x1p-24, testing::kEpsilonF16 * 1.01))
        << "row " << row;
  }
}

TEST_P(AttentionTest, ARowsBitsDoNotDependOnItsNeighbours) {
  const Case& c = GetParam();
  SCOPED_TRACE(c);
  const size_t cache_size = size_t{NumBlocks(c)} * c.num_kv_heads * c.block_tokens * c.head_dim;
  const size_t width = size_t{c.num_heads} * c.head_dim;
  const auto queries = testing::FloatsToHalves(RandomFloats(c.rows * width, 4));
  const DeviceArray k(device(), testing::FloatsToHalves(RandomFloats(cache_size, 5))),
      v(device(), testing::FloatsToHalves(RandomFloats(cache_size, 6)));
  const auto attend = [&](uint32_t first, uint32_t rows, uint32_t bucket) {
    Case part = c;
    part.position += first;
    part.rows = rows;
    const DeviceArray q(device(), std::vector<uint16_t>(queries.begin() + first * width,
                                                        queries.begin() + (first + rows) * width));
    DeviceArray step = StepOf(part);
    // The same blocks as the whole step's.
    const auto words = step.as<uint32_t>();
    const size_t table = words.size() - (part.position + part.rows);
    for (uint32_t i = 0; i * c.block_tokens < part.position + part.rows; ++i) {
      words[table + i] = BlockOf(c, i);
    }
    const DeviceArray out(device(), rows * width * 2);
    Run({AttentionLaunch(tuning(), Push(c, step, q, k, v, out), c.head_dim, cache_size * 2,
                         bucket)});
    return std::vector<uint16_t>(out.as<uint16_t>().begin(), out.as<uint16_t>().end());
  };
  const auto together = attend(0, c.rows, std::bit_ceil(c.rows));
  for (uint32_t row = 0; row < c.rows; ++row) {
    const auto alone = attend(row, 1, row % 2 == 0 ? 1 : 8);
    ASSERT_EQ(0, std::memcmp(alone.data(), together.data() + row * width, width * 2)) << row;
  }
}

TEST_P(AttentionTest, AppendWritesTheRowsVectorsAndNothingElse) {
  const Case& c = GetParam();
  SCOPED_TRACE(c);
  const size_t kv = size_t{c.num_kv_heads} * c.head_dim;
  const auto k_rows = testing::FloatsToHalves(RandomFloats(c.rows * kv, 7)),
             v_rows = testing::FloatsToHalves(RandomFloats(c.rows * kv, 8));
  const size_t cache_size = size_t{NumBlocks(c)} * c.block_tokens * kv;
  const DeviceArray step = StepOf(c), k(device(), k_rows), v(device(), v_rows),
                    k_cache(device(), cache_size * 2), v_cache(device(), cache_size * 2);
  Run({KvAppendLaunch(tuning(),
                      {.step = step.address(),
                       .k = k.address(),
                       .v = v.address(),
                       .k_cache = k_cache.address(),
                       .v_cache = v_cache.address(),
                       .num_kv_heads = c.num_kv_heads,
                       .head_dim = c.head_dim,
                       .block_tokens = c.block_tokens,
                       .group = c.window != 0 ? kWindowGroup : kGlobalGroup},
                      std::bit_ceil(c.rows))});
  EXPECT_TRUE(k_cache.Intact() && v_cache.Intact());
  std::vector<uint16_t> expected_k(cache_size, 0xA5A5), expected_v(cache_size, 0xA5A5);
  for (uint32_t row = 0; row < c.rows; ++row) {
    for (uint32_t h = 0; h < c.num_kv_heads; ++h) {
      const size_t from = row * kv + size_t{h} * c.head_dim;
      const size_t to = VectorIndex(c, c.position + row, h) * c.head_dim;
      std::copy_n(k_rows.begin() + from, c.head_dim, expected_k.begin() + to);
      std::copy_n(v_rows.begin() + from, c.head_dim, expected_v.begin() + to);
    }
  }
  EXPECT_TRUE(std::ranges::equal(k_cache.as<uint16_t>(), expected_k));
  EXPECT_TRUE(std::ranges::equal(v_cache.as<uint16_t>(), expected_v));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, AttentionTest,
    ::testing::Values(Case{1, 1, 8, 4, 0, 0, 1}, Case{4, 2, 64, 16, 0, 0, 17},
                      Case{4, 2, 64, 16, 24, 100, 9}, Case{4, 1, 256, 16, 31, 30, 5},
                      Case{6, 3, 128, 7, 33, 61, 3}, Case{3, 1, 72, 16, 0, 150, 2},
                      Case{8, 1, 200, 32, 5, 7, 3}, Case{2, 2, 24, 1, 1, 6, 4},
                      Case{2, 1, 64, 16, 0, 131069, 2}, Case{2, 1, 64, 16, 0, 20000, 1},
                      Case{2, 1, 64, 16, 0, 60000, 1}, Case{1, 1, 64, 16, 0, 100000, 1},
                      Case{1, 1, 64, 16, 0, 131000, 1}));

}  // namespace
}  // namespace tandem::gpu
