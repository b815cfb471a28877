#include "services/npu_worker/operators/step_runs.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "services/common/testing/status_matchers.h"

namespace tandem::npu {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr StepRuns::Options kGlobal = {.block_tokens = 16, .num_blocks = 8, .picture_rows = 3};
constexpr StepRuns::Options kWindow = {
    .group = kWindowGroup, .window = 20, .block_tokens = 16, .num_blocks = 8, .picture_rows = 3};

struct Step {
  std::vector<RowEntry> rows;
  std::vector<SequenceEntry> sequences;
  std::vector<uint32_t> table;
  std::vector<PictureEntry> pictures;
  StepBatch batch() const {
    StepBatch batch = {};
    batch.rows = rows;
    batch.sequences = sequences;
    batch.block_table = table;
    batch.pictures = pictures;
    return batch;
  }
};

// A sequence of `num_rows` rows from `position` on.
void AddSequence(Step& step, uint32_t position, uint32_t num_rows, std::vector<uint32_t> global,
                 std::vector<uint32_t> window) {
  const auto table = static_cast<uint32_t>(step.table.size());
  step.sequences.push_back({static_cast<uint32_t>(step.rows.size()),
                            num_rows,
                            {table, table + static_cast<uint32_t>(global.size())}});
  for (uint32_t i = 0; i < num_rows; ++i) {
    step.rows.push_back(
        {.position = position + i, .sequence = static_cast<uint32_t>(step.sequences.size() - 1)});
  }
  step.table.insert(step.table.end(), global.begin(), global.end());
  step.table.insert(step.table.end(), window.begin(), window.end());
}

std::vector<CacheExtent> ExtentsOf(const AttentionRun& run) {
  return {run.extents.begin(), run.extents.end()};
}

TEST(StepRunsTest, BlocksSideBySideAreOneExtent) {
  Step step;
  AddSequence(step, 40, 3, {4, 5, 2}, {kNoBlock, 1, 7});
  AddSequence(step, 3, 1, {0}, {3});
  StepRuns runs;
  ASSERT_OK(runs.Set(step.batch(), kGlobal));
  ASSERT_EQ(runs.runs().size(), 2u);
  EXPECT_EQ(ExtentsOf(runs.runs()[0]), (std::vector<CacheExtent>{{0, 32, 64}, {32, 16, 32}}));
  EXPECT_EQ(runs.runs()[0].first_position, 40u);
  EXPECT_EQ(runs.runs()[1].first_row, 3u);
  EXPECT_EQ(ExtentsOf(runs.runs()[1]), (std::vector<CacheExtent>{{0, 16, 0}}));
  // The window of the row at 40 begins at 21: the block before it is gone.
  ASSERT_OK(runs.Set(step.batch(), kWindow));
  EXPECT_EQ(ExtentsOf(runs.runs()[0]), (std::vector<CacheExtent>{{16, 16, 16}, {32, 16, 112}}));
}

TEST(StepRunsTest, PicturesAreRunsOfTheirOwn) {
  // The last two rows of a picture, text, a whole picture; then text; then a picture alone.
  Step step;
  AddSequence(step, 41, 7, {0, 1, 2}, {0, 1, 2});
  AddSequence(step, 9, 1, {3}, {3});
  AddSequence(step, 20, 3, {4, 5}, {4, 5});
  step.pictures = {{0, 2}, {4, 3}, {8, 3}};
  StepRuns runs;
  ASSERT_OK(runs.Set(step.batch(), kGlobal));
  const std::vector<std::array<uint32_t, 4>> expected = {{0, 2, 41, 40},
                                                         {2, 2, 43, kNoPictureRows},
                                                         {4, 3, 45, 45},
                                                         {7, 1, 9, kNoPictureRows},
                                                         {8, 3, 20, 20}};
  ASSERT_EQ(runs.runs().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const AttentionRun& run = runs.runs()[i];
    EXPECT_EQ((std::array{run.first_row, run.num_rows, run.first_position, run.picture_first}),
              expected[i]);
  }
}

// A picture that begins before the window of its rows needs the blocks from there on.
TEST(StepRunsTest, APicturesFirstPositionIsInTheExtents) {
  Step step;
  AddSequence(step, 47, 1, {}, {kNoBlock, 1, 2});
  step.pictures = {{0, 1}};
  StepRuns runs;
  StepRuns::Options options = kWindow;
  options.window = 2;
  options.picture_rows = 20;  // from position 28 on
  ASSERT_OK(runs.Set(step.batch(), options));
  EXPECT_EQ(runs.runs()[0].picture_first, 28u);
  EXPECT_EQ(runs.runs()[0].extents.front().first_position, 16u);
}

TEST(StepRunsTest, BlocksThatDoNotExistAreRefused) {
  Step step;
  AddSequence(step, 40, 3, {4, 8, 2}, {kNoBlock, kNoBlock, 7});
  StepRuns runs;
  EXPECT_THAT(runs.Set(step.batch(), kGlobal),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block 8")));
  EXPECT_THAT(runs.Set(step.batch(), kWindow),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from 16 on")));
  step.table.resize(1);
  EXPECT_THAT(runs.Set(step.batch(), kGlobal),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block 4294967295")));
}

}  // namespace
}  // namespace tandem::npu
