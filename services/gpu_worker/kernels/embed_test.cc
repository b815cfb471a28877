// Embedding look-up and row copies.
#include "services/common/testing/compare.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/packed_matrix_for_test.h"

namespace tandem::gpu {
namespace {

class EmbedTest : public KernelTest, public ::testing::WithParamInterface<DType> {};

// Token i in row i (see MakeStep): the last rows' tokens lie in the last shard.  Every third row is
// fed with the token of another.
TEST_P(EmbedTest, ReadsTheTokensRowFromItsShard) {
  constexpr uint32_t kVocab = 41, kCols = 256, kRows = 41, kGuesses = 7;
  const auto guess = [](uint32_t output) { return (output * 17 + 3) % kVocab; };
  constexpr float kScale = 16.0f;
  const PackedMatrix table(device(), GetParam(), kVocab, kCols, 1, {1, 23});
  const DeviceArray step = MakeStep(kRows), out(device(), kRows * kCols * 4),
                    guesses(device(), kGuesses * 4);
  for (uint32_t o = 0; o < kGuesses; ++o) guesses.as<uint32_t>()[o] = guess(o);
  auto* const rows = reinterpret_cast<RowEntry*>(step.data().data() + sizeof(StepHeader));
  for (uint32_t r = 0; r < kRows; r += 3) rows[r].feed = 1 + r % kGuesses;
  std::vector<Launch> launches;
  for (const DeviceShard& shard : table.tensor.shards) {
    launches.push_back(EmbedLaunch(tuning(), table.tensor, shard,
                                   {.step = step.address(),
                                    .guesses = guesses.address(),
                                    .destination = out.address(),
                                    .scale = kScale,
                                    .max_rows = 64}));
  }
  Run(launches);
  EXPECT_TRUE(out.Intact());
  std::vector<float> expected;
  for (uint32_t r = 0; r < kRows; ++r) {
    const uint32_t token = r % 3 == 0 ? guess(r % kGuesses) : r;
    const auto row = table.values.values.begin() + size_t{token} * kCols;
    expected.insert(expected.end(), row, row + kCols);
  }
  for (float& value : expected) value *= kScale;
  EXPECT_TRUE(testing::IsNear(out.floats(), expected, 0, 4 * testing::kEpsilonF32));
}

INSTANTIATE_TEST_SUITE_P(Formats, EmbedTest,
                         ::testing::ValuesIn(AllDTypes().begin(), AllDTypes().end()),
                         [](const auto& test) { return std::string(Traits(test.param).name); });

using EmbedPicturesTest = KernelTest;

TEST_F(EmbedPicturesTest, RowsOfPicturesAreTakenAsTheyAre) {
  constexpr uint32_t kCols = 96, kRows = 12, kVocab = 40;
  const std::vector<PictureEntry> pictures = {{1, 3}, {4, 1}, {7, 5}};
  const auto in_picture = [&](uint32_t row) {
    return std::ranges::any_of(pictures, [row](const PictureEntry& p) {
      return row >= p.first_row && row < p.first_row + p.num_rows;
    });
  };
  std::vector<RowEntry> rows(kRows);
  for (uint32_t r = 0; r < kRows; ++r) rows[r] = {.token = kVocab - 1 - r, .position = r};
  const SequenceEntry sequence{.num_rows = kRows};
  const OutputEntry output{.row = 2};
  const std::vector<uint32_t> table = {0, 1, 2}, pooled = {0};
  const DrawEntry draw;
  StepBatch batch;
  batch.header = {.num_rows = kRows,
                  .num_sequences = 1,
                  .num_outputs = 1,
                  .table_len = 3,
                  .num_draws = 1,
                  .num_pooled = 1,
                  .num_pictures = 3};
  batch.rows = rows;
  batch.sequences = {&sequence, 1};
  batch.outputs = {&output, 1};
  batch.block_table = table;
  batch.draws = {&draw, 1};
  batch.pooled = pooled;
  batch.pictures = pictures;
  std::vector<std::byte> bytes(StepBytes(batch.header));
  WriteStep(batch, bytes);
  const PackedMatrix embeddings(device(), DType::kQ8_0, kVocab, kCols, 1, {1, 23});
  const std::vector<float> soft_tokens = RandomFloats(size_t{kRows} * kCols, 5);
  const DeviceArray step(device(), bytes), given(device(), soft_tokens),
      guesses(device(), std::vector<uint32_t>{0}), out(device(), kRows * kCols * 4);
  std::vector<Launch> launches;
  for (const DeviceShard& shard : embeddings.tensor.shards) {
    launches.push_back(EmbedLaunch(tuning(), embeddings.tensor, shard,
                                   {.step = step.address(),
                                    .guesses = guesses.address(),
                                    .soft_tokens = given.address(),
                                    .destination = out.address(),
                                    .scale = 2.0f,
                                    .max_rows = 16}));
  }
  Run(launches);
  EXPECT_TRUE(out.Intact());
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t i = 0; i < kCols; ++i) {
      const float embedded = 2.0f * embeddings.values.values[size_t{rows[r].token} * kCols + i];
      const float expected = in_picture(r) ? soft_tokens[size_t{r} * kCols + i] : embedded;
      ASSERT_EQ(out.as<float>()[size_t{r} * kCols + i], expected) << "row " << r << ", " << i;
    }
  }
}

using CopyRowsTest = KernelTest;

TEST_F(CopyRowsTest, CopiesRowsOfAnyWidth) {
  for (const uint32_t cols : {1u, 31u, 2047u, 2048u, 2049u, 5001u}) {
    SCOPED_TRACE(cols);
    constexpr uint32_t kRows = 3, kFirst = 1;
    const uint32_t stride = cols + 2;
    const std::vector<float> values = RandomFloats(size_t{kRows} * stride, cols);
    const DeviceArray step = MakeStep(kRows), in(device(), values),
                      out(device(), uint64_t{kRows} * cols * 4);
    Run({CopyRowsLaunch(tuning(),
                        {.count = RowCount(step),
                         .source = in.address(),
                         .destination = out.address(),
                         .cols = cols,
                         .source_stride = stride,
                         .destination_stride = cols,
                         .first_row = kFirst},
                        4)});
    EXPECT_TRUE(out.Intact());
    EXPECT_TRUE(testing::IsGuard(out.data().first(size_t{cols} * 4)));
    for (uint32_t row = kFirst; row < kRows; ++row) {
      EXPECT_EQ(0, std::memcmp(out.as<float>().data() + size_t{row} * cols,
                               values.data() + size_t{row - kFirst} * stride, size_t{cols} * 4));
    }
  }
}

using CopyPagesTest = KernelTest;

TEST_F(CopyPagesTest, CopiesPagesOfAnySize) {
  // The numbers of threads are powers of two.
  for (const uint32_t words : {4u, 28u, 4092u, 16384u, 16388u}) {
    SCOPED_TRACE(words);
    constexpr uint32_t kPages = 5;
    const std::vector<float> values = RandomFloats(size_t{kPages} * words, words);
    const DeviceArray in(device(), values), out(device(), uint64_t{kPages} * words * 4),
        table(device(), kPages * 16);
    // In another order; the first page of the output is left.
    for (uint64_t i = 0; i + 1 < kPages; ++i) {
      const uint64_t places[] = {in.address() + (kPages - 1 - i) * words * 4,
                                 out.address() + (i + 1) * words * 4};
      std::memcpy(table.data().data() + i * sizeof(places), places, sizeof(places));
    }
    Run({CopyPagesLaunch(tuning(), table.address(), kPages - 1, uint64_t{words} * 4)});
    EXPECT_TRUE(out.Intact());
    EXPECT_TRUE(testing::IsGuard(out.data().first(size_t{words} * 4)));
    for (uint32_t i = 0; i + 1 < kPages; ++i) {
      EXPECT_EQ(0, std::memcmp(out.as<float>().data() + size_t{i + 1} * words,
                               values.data() + size_t{kPages - 1 - i} * words, size_t{words} * 4));
    }
  }
}

// More pages than workgroups side by side.
TEST_F(CopyPagesTest, CopiesManyPages) {
  constexpr uint32_t kPages = 70000, kWords = 4;
  const std::vector<float> values = RandomFloats(size_t{kPages} * kWords, 1);
  const DeviceArray in(device(), values), out(device(), uint64_t{kPages} * kWords * 4),
      table(device(), uint64_t{kPages} * 16);
  for (uint64_t i = 0; i < kPages; ++i) {
    const uint64_t places[] = {in.address() + i * kWords * 4,
                               out.address() + (kPages - 1 - i) * kWords * 4};
    std::memcpy(table.data().data() + i * sizeof(places), places, sizeof(places));
  }
  Run({CopyPagesLaunch(tuning(), table.address(), kPages, kWords * 4)});
  EXPECT_TRUE(out.Intact());
  for (size_t i = 0; i < kPages; ++i) {
    ASSERT_EQ(0, std::memcmp(out.as<float>().data() + (kPages - 1 - i) * kWords,
                             values.data() + i * kWords, kWords * 4));
  }
}

}  // namespace
}  // namespace tandem::gpu
