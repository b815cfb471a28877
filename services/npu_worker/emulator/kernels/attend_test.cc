#include "services/npu_worker/emulator/kernels/attend.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "services/common/testing/status_matchers.h"
#include "services/npu_worker/emulator/kernels/kernel_test_data.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint32_t kHeads = 4, kKvHeads = 2, kDim = 64, kBlockTokens = 16, kBlocks = 8;
constexpr uint32_t kMaxRows = 64;

// One layer with its exchange and cache; areas one after another: q, k, v, attention.
class AttendKernelTest : public ::testing::Test {
 protected:
  AttendKernelTest() {
    layer_ = {.head_dim = kDim,
              .num_heads = kHeads,
              .num_kv_heads = kKvHeads,
              .group = kGlobalGroup,
              .block_tokens = kBlockTokens,
              .num_blocks = kBlocks,
              .scale = 0.125f,
              .q_offset = 0,
              .k_offset = kMaxRows * kHeads * kDim * 2,
              .v_offset = kMaxRows * (kHeads + kKvHeads) * kDim * 2,
              .attention_offset = kMaxRows * (kHeads + 2 * kKvHeads) * kDim * 2};
    exchange_.resize(kMaxRows * (2 * kHeads + 2 * kKvHeads) * kDim);
    // Whatever the cache has not been given is NaN: no row may look at it.
    kv_.assign(kBlocks * KvBlockElements(kKvHeads, kBlockTokens, kDim), 0x7E00);
  }

  // Rows [first, first + n) of a sequence with blocks in the order of `table`.
  TestStep Chunk(uint32_t first, uint32_t n, std::vector<uint32_t> table) const {
    return {{.num_rows = n,
             .num_sequences = 1,
             .table_len = static_cast<uint32_t>(table.size()),
             .num_positions = first + n},
            {{.num_rows = n, .first_position = first}},
            std::move(table)};
  }
  // q, k, v of positions [first, first + n), the same whatever the chunk, from row `row` on.
  void Write(uint32_t row, uint32_t first, uint32_t n) {
    const auto copy = [&](uint64_t offset, uint32_t heads, uint32_t seed) {
      for (uint32_t i = 0; i < n; ++i) {
        const auto values = RandomHalves(heads * kDim, seed + 100 * (first + i));
        std::ranges::copy(values, exchange_.begin() + offset / 2 + (row + i) * heads * kDim);
      }
    };
    copy(layer_.q_offset, kHeads, 1);
    copy(layer_.k_offset, kKvHeads, 2);
    copy(layer_.v_offset, kKvHeads, 3);
  }
  absl::Status Run(const TestStep& step) {
    const auto bytes = step.Bytes();
    TANDEM_ASSIGN_OR_RETURN(const StepView view, ReadStep(bytes));
    return Attend(view, layer_, AsBytes(exchange_), AsBytes(kv_), parallel_for_).status();
  }
  std::vector<uint16_t> Output(uint32_t row, uint32_t n) const {
    const auto begin = exchange_.begin() + layer_.attention_offset / 2 + row * kHeads * kDim;
    return {begin, begin + n * kHeads * kDim};
  }

  AttendParameters layer_;
  std::vector<uint16_t> exchange_;
  std::vector<uint16_t> kv_;
  ParallelFor parallel_for_;
};

TEST_F(AttendKernelTest, TheFirstRowSeesItselfAlone) {
  Write(0, 0, 1);
  ASSERT_OK(Run(Chunk(0, 1, {5})));
  const auto output = Output(0, 1);
  for (uint32_t h = 0; h < kHeads; ++h) {
    for (uint32_t d = 0; d < kDim; ++d) {
      const size_t v = layer_.v_offset / 2 + (h / (kHeads / kKvHeads)) * kDim + d;
      EXPECT_EQ(output[h * kDim + d], exchange_[v]);
    }
  }
}

// Bit for bit, whatever the chunks, the blocks, the neighbours and the window.
TEST_F(AttendKernelTest, ARowDoesNotDependOnHowItWasBatched) {
  for (const uint32_t window : {0u, 1u, 7u, 16u, 33u}) {
    layer_.window = window;
    const auto run_in_chunks = [&](uint32_t chunk, const std::vector<uint32_t>& table) {
      std::ranges::fill(kv_, 0x7E00);
      std::vector<uint16_t> output;
      for (uint32_t first = 0; first < 61; first += chunk) {
        const uint32_t n = std::min(chunk, 61 - first);
        Write(0, first, n);
        EXPECT_OK(Run(Chunk(first, n, table)));
        const auto rows = Output(0, n);
        output.insert(output.end(), rows.begin(), rows.end());
      }
      return output;
    };
    const auto whole = run_in_chunks(61, {0, 1, 2, 3});
    for (const uint32_t chunk : {1u, 7u, 15u, 16u, 17u, 40u}) {
      EXPECT_EQ(run_in_chunks(chunk, {6, 1, 7, 4}), whole) << "chunk " << chunk;
    }
    // The same rows beside another sequence.
    std::ranges::fill(kv_, 0x7E00);
    Write(0, 3, 1);
    Write(1, 0, 61);
    TestStep both = Chunk(0, 61, {3, 2, 1, 0, 7});
    both.header.num_rows = 62;
    both.header.num_sequences = 2;
    both.sequences = {{.num_rows = 1, .table_offset = {4, 4}}, {.first_row = 1, .num_rows = 61}};
    ASSERT_OK(Run(both));
    EXPECT_EQ(Output(1, 61), whole);
  }
}

// Rows with one q differ in what they see alone.
TEST_F(AttendKernelTest, RowsOfAPictureSeeAllOfItWhateverTheWindow) {
  constexpr uint32_t kFirst = 12, kRows = 19, kLast = kFirst + kRows - 1, kPicture = 10;
  const std::vector<uint32_t> table = {5, 0};
  const auto run = [&](uint32_t window, uint32_t picture_first) {
    std::ranges::fill(kv_, 0x7E00);
    layer_.window = window;
    Write(0, 0, kFirst);
    EXPECT_OK(Run(Chunk(0, kFirst, table)));
    Write(0, kFirst, kRows);
    const auto q = exchange_.begin() + layer_.q_offset / 2;
    const auto last_q = q + (kRows - 1) * kHeads * kDim;
    for (uint32_t row = 0; row + 1 < kRows; ++row) {
      std::copy(last_q, last_q + kHeads * kDim, q + row * kHeads * kDim);
    }
    TestStep step = Chunk(kFirst, kRows, table);
    step.sequences[0].picture_first = picture_first;
    EXPECT_OK(Run(step));
    return Output(0, kRows);
  };
  const auto row_of = [](const std::vector<uint16_t>& output, uint32_t row) {
    const auto begin = output.begin() + row * kHeads * kDim;
    return std::vector<uint16_t>(begin, begin + kHeads * kDim);
  };
  const std::vector<uint16_t> sees_all = row_of(run(0, kNoPicture), kRows - 1);
  const std::vector<uint16_t> all = run(0, kPicture);
  for (uint32_t row = 0; row < kRows; ++row) EXPECT_EQ(row_of(all, row), sees_all) << row;
  // A window that ends with the picture's first row, or, of the first rows, before it.
  constexpr uint32_t kWindow = 7;
  const auto sees_picture = row_of(run(kLast + 1 - kPicture, kNoPicture), kRows - 1);
  const std::vector<uint16_t> windowed = run(kWindow, kPicture);
  for (uint32_t row = kPicture + kWindow - 1 - kFirst; row < kRows; ++row) {
    EXPECT_EQ(row_of(windowed, row), sees_picture) << row;
  }
  EXPECT_NE(row_of(windowed, 0), sees_picture);
}

TEST_F(AttendKernelTest, LargeScoresDoNotOverflow) {
  layer_.scale = 1000.0f;
  Write(0, 0, 20);
  ASSERT_OK(Run(Chunk(0, 20, {0, 1})));
  for (const uint16_t value : Output(0, 20)) EXPECT_TRUE(std::isfinite(HalfToFloat(value)));
}

TEST_F(AttendKernelTest, RefusesEveryBadDescriptorAndWritesNothing) {
  const std::vector<std::function<void(TestStep&, AttendParameters&)>> faults = {
      [](TestStep& s, AttendParameters&) { s.header.magic = 0; },
      [](TestStep& s, AttendParameters&) { s.header.version = 9; },
      [](TestStep& s, AttendParameters&) { s.header.num_rows = 0; },
      [](TestStep& s, AttendParameters&) { s.header.num_rows = 0xFFFFFFFF; },
      [](TestStep& s, AttendParameters&) { s.header.num_sequences = 0xFFFFFFFF; },
      [](TestStep& s, AttendParameters&) { s.header.table_len = 0xFFFFFFFF; },
      [](TestStep& s, AttendParameters&) { s.header.num_positions = 1; },
      [](TestStep& s, AttendParameters&) { s.sequences[0].first_row = 1; },
      [](TestStep& s, AttendParameters&) { s.sequences[0].num_rows = 0; },
      [](TestStep& s, AttendParameters&) { s.sequences[0].num_rows = 0xFFFFFFFF; },
      [](TestStep& s, AttendParameters&) { s.sequences[0].first_position = 0xFFFFFFFF; },
      [](TestStep& s, AttendParameters&) { s.sequences[0].table_offset[0] = 1; },
      [](TestStep& s, AttendParameters&) { s.sequences[0].table_offset[0] = 0xFFFFFFFF; },
      [](TestStep& s, AttendParameters&) { s.table[1] = kBlocks; },
      [](TestStep& s, AttendParameters&) { s.table[0] = kNoBlock; },
      [](TestStep&, AttendParameters& p) { p.magic = 0; },
      [](TestStep&, AttendParameters& p) { p.head_dim = 0; },
      [](TestStep&, AttendParameters& p) { p.head_dim = 63; },
      [](TestStep&, AttendParameters& p) { p.head_dim = 0xFFFFFFF0; },
      [](TestStep&, AttendParameters& p) { p.num_heads = 3; },
      [](TestStep&, AttendParameters& p) { p.num_heads = 0; },
      [](TestStep&, AttendParameters& p) { p.num_heads = 0xFFFFFFFE; },
      [](TestStep&, AttendParameters& p) { p.num_kv_heads = 0; },
      [](TestStep&, AttendParameters& p) { p.group = 2; },
      [](TestStep&, AttendParameters& p) { p.block_tokens = 0; },
      [](TestStep&, AttendParameters& p) { p.block_tokens = 0xFFFFFFFF; },
      [](TestStep&, AttendParameters& p) { p.num_blocks = kBlocks + 1; },
      [](TestStep&, AttendParameters& p) { p.num_blocks = 0xFFFFFFFF; },
      [](TestStep&, AttendParameters& p) { p.q_offset = ~uint64_t{7}; },
      [](TestStep&, AttendParameters& p) { p.k_offset = 1; },
      [](TestStep&, AttendParameters& p) { p.v_offset = uint64_t{1} << 40; },
      [](TestStep&, AttendParameters& p) { p.attention_offset += kMaxRows * kHeads * kDim * 2; },
      [](TestStep&, AttendParameters& p) { p.kv_offset = 8; },
  };
  Write(0, 0, 20);
  const std::vector<uint16_t> exchange = exchange_, kv = kv_;
  const AttendParameters good = layer_;
  for (size_t i = 0; i < faults.size(); ++i) {
    TestStep step = Chunk(0, 20, {0, 1});
    layer_ = good;
    faults[i](step, layer_);
    EXPECT_FALSE(Run(step).ok()) << "fault " << i;
    EXPECT_EQ(exchange_, exchange) << "fault " << i;
    EXPECT_EQ(kv_, kv) << "fault " << i;
  }
  layer_ = good;
  EXPECT_OK(Run(Chunk(0, 20, {0, 1})));
}

TEST_F(AttendKernelTest, RefusesAStepCutShortAnywhere) {
  const auto bytes = Chunk(0, 20, {0, 1}).Bytes();
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(ReadStep(std::span(bytes).first(n)).ok()) << n;
  }
  EXPECT_TRUE(ReadStep(bytes).ok());
}

}  // namespace
}  // namespace tandem::npu::emulator
