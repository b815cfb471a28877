// For attention's tests: rows of several sequences over a cache whose blocks lie in random order,
// and what the reference makes of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/reference/ops.h"
#include "services/common/tensor/kv_format.h"
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/activation_for_test.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"
#include "services/gpu_worker/kernels/push_constants.h"

namespace tandem::gpu {

struct SequenceRows {
  uint32_t position = 0;  // of the first row
  uint32_t rows = 1;
  std::vector<uint32_t> pictures = {};  // positions of their first rows, which may lie before
};

struct AttentionCase {
  uint32_t num_heads, num_kv_heads, head_dim, block_tokens, window;
  std::vector<SequenceRows> sequences;
  DType kv_dtype = DType::kF16;
  uint32_t picture_rows = 0;

  uint32_t num_rows() const {
    uint32_t rows = 0;
    for (const SequenceRows& s : sequences) rows += s.rows;
    return rows;
  }
  uint32_t q_dim() const { return num_heads * head_dim; }
  uint32_t kv_dim() const { return num_kv_heads * head_dim; }
  uint32_t qkv_dim() const { return q_dim() + 2 * kv_dim(); }
  uint32_t group() const { return window != 0 ? kWindowGroup : kGlobalGroup; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(head_dim)); }
  // Of a step with `rows` rows.
  StepLimits limits(uint32_t rows) const {
    StepLimits limits{.max_rows = rows, .picture_rows = picture_rows};
    for (const SequenceRows& s : sequences) {
      limits.max_pictures += static_cast<uint32_t>(s.pictures.size());
    }
    return limits;
  }
  // The first and the last position that a row sees.
  std::pair<uint32_t, uint32_t> Seen(const SequenceRows& sequence, uint32_t position) const {
    const uint32_t first = window != 0 && position + 1 > window ? position + 1 - window : 0;
    for (const uint32_t picture : sequence.pictures) {
      if (position < picture || position >= picture + picture_rows) continue;
      return {std::min(first, picture), picture + picture_rows - 1};
    }
    return {first, position};
  }
  // For QkNormRopeAppendLaunch, without addresses.
  QkNormRopePush rope_push(float epsilon) const {
    return {.num_heads = num_heads,
            .num_kv_heads = num_kv_heads,
            .head_dim = head_dim,
            .epsilon = epsilon,
            .block_tokens = block_tokens,
            .group = group()};
  }
  ModelConfig config() const {
    ModelConfig config;
    config.num_heads = num_heads;
    config.num_kv_heads = num_kv_heads;
    config.head_dim = head_dim;
    config.attention_scale = scale();
    return config;
  }
};
inline std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  out << c.num_heads << " heads of " << c.head_dim << " on " << c.num_kv_heads << ", blocks of "
      << c.block_tokens << ", window " << c.window << ", KV in " << Traits(c.kv_dtype).name
      << ", rows";
  for (const SequenceRows& s : c.sequences) {
    out << " " << s.position << "+" << s.rows;
    for (const uint32_t picture : s.pictures) out << ", picture at " << picture;
  }
  return out;
}

// Of every block of a q8_0 cache that a test fills: what RandomVectors rounds to, so that the cache
// holds its values exactly.
inline constexpr float kKvQuantum = 0x1p-5f;

// The sequences' positions and tables, for any choice of their rows.
class AttentionWorld {
 public:
  explicit AttentionWorld(const AttentionCase& c) : c_(c) {
    uint32_t num_blocks = 1;  // one more than needed
    for (const SequenceRows& s : c.sequences) num_blocks += BlocksFor(s.position + s.rows);
    std::vector<uint32_t> order(num_blocks);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), std::mt19937(num_blocks));
    auto next = order.begin();
    for (const SequenceRows& s : c.sequences) {
      const uint32_t n = BlocksFor(s.position + s.rows);
      tables_.emplace_back(next, next + n);
      next += n;
    }
    page_bytes_ = KvPageBytes(c.kv_dtype, c.block_tokens, c.head_dim);
    cache_bytes_ = num_blocks * c.num_kv_heads * page_bytes_;
  }

  // Of K, or of V.
  size_t cache_bytes() const { return cache_bytes_; }
  // A cache with `values` [end, kv_dim] of every sequence from the first position that one of its
  // rows sees to before its rows, or, `with_rows`, after them; NaN elsewhere.
  std::vector<std::byte> Cache(const std::vector<std::vector<uint16_t>>& values,
                               bool with_rows) const {
    std::vector<std::byte> cache(cache_bytes_);
    for (size_t i = 0; i < cache_bytes_; i += 2) std::memcpy(&cache[i], &kNanHalf, 2);
    for (size_t s = 0; s < c_.sequences.size(); ++s) {
      const SequenceRows& rows = c_.sequences[s];
      const uint32_t end = rows.position + (with_rows ? rows.rows : 0);
      for (uint32_t p = c_.Seen(rows, rows.position).first; p < end; ++p) {
        PutVectors(s, p, values[s], cache);
      }
    }
    return cache;
  }
  // The heads of one position of `values` [end, kv_dim], in the cache's format.
  void PutVectors(size_t sequence, uint32_t position, const std::vector<uint16_t>& values,
                  std::vector<std::byte>& cache) const {
    const uint16_t* from = values.data() + size_t{position} * c_.kv_dim();
    for (uint32_t h = 0; h < c_.num_kv_heads; ++h, from += c_.head_dim) {
      std::byte* const page = cache.data() + PageAt(sequence, position, h);
      const size_t token = position % c_.block_tokens;
      if (c_.kv_dtype == DType::kF16) {
        std::memcpy(page + token * c_.head_dim * 2, from, size_t{c_.head_dim} * 2);
        continue;
      }
      const uint16_t quantum = FloatToHalf(kKvQuantum);
      for (uint32_t i = 0; i < c_.head_dim; ++i) {
        page[token * c_.head_dim + i] =
            static_cast<std::byte>(static_cast<int8_t>(HalfToFloat(from[i]) / kKvQuantum));
      }
      std::byte* const scales = page + size_t{c_.block_tokens} * c_.head_dim;
      for (uint32_t b = 0; b < c_.head_dim / 32; ++b) {
        std::memcpy(scales + (token * (c_.head_dim / 32) + b) * 2, &quantum, 2);
      }
    }
  }
  // Whether two caches hold the same up to one unit in the last place of each number.
  ::testing::AssertionResult AreClose(std::span<const std::byte> a,
                                      std::span<const std::byte> b) const {
    const size_t bytes = c_.kv_dtype == DType::kF16 ? 0 : size_t{c_.block_tokens} * c_.head_dim;
    for (size_t i = 0; i < cache_bytes_; ++i) {
      int x = static_cast<int8_t>(a[i]), y = static_cast<int8_t>(b[i]);
      if (i % page_bytes_ >= bytes) {
        int16_t halves[2];
        std::memcpy(&halves[0], &a[i], 2);
        std::memcpy(&halves[1], &b[i], 2);
        x = halves[0], y = halves[1];
        ++i;
      }
      if (std::abs(x - y) > 1) {
        return ::testing::AssertionFailure() << "byte " << i << ": " << x << ", " << y;
      }
    }
    return ::testing::AssertionSuccess();
  }

  // `chosen`: rows of each sequence in the step, [first, first + num) of the case's; none: 0.  They
  // end inside no picture.
  struct Step {
    std::vector<std::byte> step, attention;
    Sequences sequences = Sequences::kShort;
  };
  Step MakeStep(const std::vector<std::pair<uint32_t, uint32_t>>& chosen,
                const TileRules& rules) const {
    StepBatch batch;
    std::vector<RowEntry> rows;
    std::vector<SequenceEntry> sequences;
    std::vector<PictureEntry> pictures;
    std::vector<uint32_t> table = {0xDEAD};  // tables need not begin at the start
    for (size_t s = 0; s < chosen.size(); ++s) {
      const auto& [first, num] = chosen[s];
      if (num == 0) continue;
      const uint32_t position = c_.sequences[s].position + first;
      const auto index = static_cast<uint32_t>(sequences.size());
      SequenceEntry& entry = sequences.emplace_back();
      entry.first_row = static_cast<uint32_t>(rows.size());
      entry.num_rows = num;
      for (uint32_t i = 0; i < num; ++i) rows.push_back({i, position + i, index, 0});
      entry.table_offset[c_.group()] = static_cast<uint32_t>(table.size());
      for (const uint32_t picture : c_.sequences[s].pictures) {
        const uint32_t begin = std::max(picture, position), end = picture + c_.picture_rows;
        if (begin >= end || begin >= position + num) continue;
        pictures.push_back({entry.first_row + begin - position, end - begin});
      }
      const uint32_t gone =
          c_.window != 0 ? c_.Seen(c_.sequences[s], position).first / c_.block_tokens : 0;
      for (uint32_t b = 0; b < BlocksFor(position + num); ++b) {
        table.push_back(b < gone ? kNoBlock : tables_[s][b]);
      }
    }
    batch.header.num_rows = static_cast<uint32_t>(rows.size());
    batch.header.num_sequences = static_cast<uint32_t>(sequences.size());
    batch.header.table_len = static_cast<uint32_t>(table.size());
    batch.rows = rows;
    batch.sequences = sequences;
    batch.block_table = table;
    batch.header.num_pictures = static_cast<uint32_t>(pictures.size());
    batch.pictures = pictures;
    Step step;
    step.step.resize(StepBytes(batch.header));
    WriteStep(batch, step.step);
    const AttentionStepLayout layout(c_.limits(batch.header.num_rows), rules);
    step.attention.resize(layout.bytes);
    WriteAttentionStep(batch, layout, step.attention);
    step.sequences = SequencesOf(batch, rules);
    return step;
  }
  Step WholeStep(const TileRules& rules) const {
    std::vector<std::pair<uint32_t, uint32_t>> all;
    for (const SequenceRows& s : c_.sequences) all.emplace_back(0, s.rows);
    return MakeStep(all, rules);
  }

  // Checks [num_rows, q_dim] results against the reference on float16 q [num_rows, q_dim] and
  // k, v [end, kv_dim] of every sequence.  `more`: bound on what else differs.
  void Check(const std::vector<float>& actual, const std::vector<uint16_t>& q,
             const std::vector<std::vector<uint16_t>>& k,
             const std::vector<std::vector<uint16_t>>& v, double more) const {
    const std::vector<float> queries = testing::HalvesToFloats(q);
    const size_t width = c_.q_dim(), kv = c_.kv_dim();
    uint32_t row = 0;
    for (size_t s = 0; s < c_.sequences.size(); ++s) {
      const auto keys = testing::HalvesToFloats(k[s]), values = testing::HalvesToFloats(v[s]);
      for (uint32_t i = 0; i < c_.sequences[s].rows; ++i, ++row) {
        const auto [first, last] = c_.Seen(c_.sequences[s], c_.sequences[s].position + i);
        std::vector<const float*> seen_keys, seen_values;
        for (uint32_t p = first; p <= last; ++p) {
          seen_keys.push_back(keys.data() + p * kv);
          seen_values.push_back(values.data() + p * kv);
        }
        std::vector<float> expected(width);
        reference::AttendRow(c_.config(), std::span(queries).subspan(row * width, width), seen_keys,
                             seen_values, expected);
        // Scores of order ten, good to a few units each, go through exp; sums of n weights that
        // add to one; values of at most five; one rounding to float16.
        const double n = static_cast<double>(seen_keys.size() + c_.head_dim);
        const double bound = 5 * (64 + 4 * std::sqrt(n)) * testing::kEpsilonF32;
        ASSERT_TRUE(testing::IsNear(std::span(actual).subspan(row * width, width), expected,
                                    bound + more + 0x1p-24, testing::kEpsilonF16 * 1.01))
            << "sequence " << s << " row " << i;
      }
    }
  }

 private:
  static constexpr uint16_t kNanHalf = 0x7E00;

  // Where a page begins, bytes.
  size_t PageAt(size_t sequence, uint32_t position, uint32_t kv_head) const {
    const size_t block = tables_[sequence][position / c_.block_tokens];
    return (block * c_.num_kv_heads + kv_head) * page_bytes_;
  }
  uint32_t BlocksFor(uint32_t end) const { return (end + c_.block_tokens - 1) / c_.block_tokens; }

  const AttentionCase c_;
  std::vector<std::vector<uint32_t>> tables_;
  size_t page_bytes_ = 0, cache_bytes_ = 0;
};

// float16 values of every sequence's positions, [end, kv_dim]; q8_0: whole quanta, and each block
// of 32 begins with the 127 that makes the quantum its scale.
inline std::vector<std::vector<uint16_t>> RandomVectors(const AttentionCase& c, uint32_t seed) {
  std::vector<std::vector<uint16_t>> values;
  for (const SequenceRows& s : c.sequences) {
    std::vector<float> floats = RandomFloats(size_t{s.position + s.rows} * c.kv_dim(), seed++);
    for (size_t i = 0; c.kv_dtype == DType::kQ8_0 && i < floats.size(); ++i) {
      const float quanta = std::clamp(std::round(floats[i] / kKvQuantum), -127.0f, 127.0f);
      floats[i] = kKvQuantum * (i % 32 == 0 ? std::copysign(127.0f, quanta) : quanta);
    }
    values.push_back(testing::FloatsToHalves(floats));
  }
  return values;
}

// Results in ActivationFormat::kF16.
inline std::vector<float> Floats(const std::vector<std::byte>& halves) {
  std::vector<uint16_t> words(halves.size() / 2);
  std::memcpy(words.data(), halves.data(), halves.size());
  return testing::HalvesToFloats(words);
}

// `fragments`: activations [rows, cols] of the float32 ones in `exact`.
inline void CheckFragments(const std::vector<std::byte>& exact,
                           const std::vector<std::byte>& fragments, uint32_t rows, uint32_t cols) {
  constexpr auto kFragments = ActivationFormat::kFragments;
  for (uint32_t row = 0; row < rows; ++row) {
    const auto actual = ReadActivations(
        fragments.data() + ActivationRowOffset(kFragments, cols, row), kFragments, cols);
    const auto expected =
        ReadActivations(exact.data() + size_t{row} * cols * 4, ActivationFormat::kF32, cols);
    ASSERT_TRUE(testing::IsNear(actual, expected, 0x1p-25, testing::kEpsilonF16)) << "row " << row;
  }
}

// `blocks`: int8 activations [rows, cols] of the float32 ones in `exact`.
inline void CheckQuantised(const std::vector<std::byte>& exact,
                           const std::vector<std::byte>& blocks, uint32_t rows, uint32_t cols) {
  const uint64_t row_bytes = ActivationRowBytes(ActivationFormat::kInt8, cols);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < cols; ++i) {
      const std::byte* unit = blocks.data() + row * row_bytes + i / kUnitElements * kUnitBytes;
      float value, scale;
      std::memcpy(&value, exact.data() + (size_t{row} * cols + i) * 4, 4);
      std::memcpy(&scale, unit + kUnitElements + i % kUnitElements / 32 * 4, 4);
      const float actual = scale * static_cast<float>(static_cast<int8_t>(unit[i % kUnitElements]));
      ASSERT_NEAR(actual, value, scale * 0.501) << "row " << row << " element " << i;
    }
  }
}

}  // namespace tandem::gpu
