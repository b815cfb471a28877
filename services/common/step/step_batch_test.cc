#include "services/common/step/step_batch.h"

#include <gtest/gtest.h>

#include <functional>

namespace tandem {
namespace {

StepLimits Limits() {
  return {.max_rows = 8,
          .max_sequences = 4,
          .max_outputs = 8,
          .max_logit_outputs = 2,
          .max_table_len = 64,
          .vocab_size = 100,
          .context_len = 256,
          .block_tokens = 16,
          .sliding_window = 32,
          .num_blocks = {10, 6}};
}

// Two sequences: one chunk of three rows at position 0, one decode row at position 70.
struct Step {
  StepHeader header{.num_rows = 4,
                    .num_sequences = 2,
                    .num_outputs = 2,
                    .num_candidates = 4,
                    .table_len = 12,
                    .num_draws = 1,
                    .num_pooled = 2,
                    .num_masks = 1};
  std::vector<RowEntry> rows{{5, 0, 0}, {6, 1, 0}, {7, 2, 0}, {9, 70, 1}};
  std::vector<SequenceEntry> sequences{{0, 3, {0, 1}}, {3, 1, {2, 7}}};
  std::vector<OutputEntry> outputs{{2, 42}, {3, kNoToken, kNoDraw, 0}};
  std::vector<uint32_t> table{9, 5, 0, 1, 2, 3, 4, kNoBlock, kNoBlock, 0, 1, 2};
  std::vector<DrawEntry> draws{{}};
  std::vector<uint32_t> pooled{0, 1};

  std::vector<std::byte> Write() const {
    std::vector<std::byte> area(StepAreaBytes(Limits()) + 64);
    WriteStep({header, rows, sequences, outputs, table, draws, pooled}, area);
    return area;
  }
};

TEST(StepBatchTest, ReadsBackWhatWasWritten) {
  std::vector<std::byte> storage;
  const auto batch = ParseStep(Step().Write(), Limits(), storage);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->rows[3].position, 70u);
  EXPECT_EQ(batch->sequences[1].table_offset[kWindowGroup], 7u);
  EXPECT_EQ(batch->outputs[0].target, 42u);
  EXPECT_EQ(batch->outputs[0].mask, kNoMask);
  EXPECT_EQ(batch->outputs[1].mask, 0u);
  EXPECT_EQ(batch->block_table[11], 2u);
  EXPECT_EQ(batch->draws[0].temperature, 1.0f);
  EXPECT_EQ(batch->pooled[1], 1u);
}

TEST(StepBatchTest, RefusesEveryIndexOutOfRange) {
  const std::vector<std::function<void(Step&)>> faults = {
      [](Step& s) { s.header.magic = 1; },
      [](Step& s) { s.header.num_candidates = kMaxCandidates + 1; },
      [](Step& s) { s.header.want_logits = 2; },
      [](Step& s) { s.rows[0].token = 100; },
      [](Step& s) { s.rows[1].position = 5; },
      [](Step& s) { s.rows[3].position = 256; },
      [](Step& s) { s.rows[3].sequence = 0; },
      [](Step& s) { s.sequences[1].first_row = 2; },
      [](Step& s) { s.sequences[1].num_rows = 2; },
      [](Step& s) { s.sequences[0].num_rows = 0xFFFFFFFF; },
      [](Step& s) { s.sequences[1].table_offset[0] = 8; },
      [](Step& s) { s.sequences[1].table_offset[0] = 0xFFFFFFFF; },
      [](Step& s) { s.outputs[0].row = 4; },
      [](Step& s) { s.outputs[0].target = 100; },
      [](Step& s) { s.outputs[1].mask = 1; },  // there is one mask
      [](Step& s) { s.header.num_masks = 0; },
      [](Step& s) { s.header.num_masks = 5; },  // more than there may be sequences
      [](Step& s) { s.outputs[0].mask = 0; },   // beside a target
      [](Step& s) { s.pooled[1] = 2; },         // there are two sequences
      [](Step& s) { s.pooled[0] = 1; },         // twice the same
      [](Step& s) {
        s.pooled = {1, 0};
      },
      [](Step& s) {  // more than there may be sequences
        s.pooled.resize(5);
        s.header.num_pooled = 5;
      },
      [](Step& s) { s.draws[0].top_p = 0; },
      [](Step& s) { s.table[0] = 10; },
      [](Step& s) { s.table[1] = 6; },
      [](Step& s) { s.table[0] = kNoBlock; },   // the global group keeps everything
      [](Step& s) { s.table[10] = kNoBlock; },  // position 70 still sees 39 in block 2
      [](Step& s) { s.table[9] = kNoBlock; },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    Step step;
    faults[i](step);
    std::vector<std::byte> storage;
    EXPECT_EQ(ParseStep(step.Write(), Limits(), storage).status().code(),
              absl::StatusCode::kInvalidArgument)
        << "fault " << i;
  }
}

// The first sequence's three rows as a picture of two and a row of text.
struct PictureStep : Step {
  std::vector<PictureEntry> pictures{{1, 2}};
  uint32_t picture_rows = 2;

  absl::StatusOr<StepBatch> Parse(std::vector<std::byte>& storage) {
    StepLimits limits = Limits();
    limits.max_pictures = 2;
    limits.picture_rows = picture_rows;
    header.num_pictures = static_cast<uint32_t>(pictures.size());
    std::vector<std::byte> area(StepAreaBytes(limits) + 64);
    WriteStep({header, rows, sequences, outputs, table, draws, pooled, pictures}, area);
    return ParseStep(area, limits, storage);
  }
};

TEST(StepBatchTest, ReadsPictures) {
  std::vector<std::byte> storage;
  const auto batch = PictureStep().Parse(storage);
  ASSERT_TRUE(batch.ok()) << batch.status();
  ASSERT_EQ(batch->pictures.size(), 1u);
  EXPECT_EQ(batch->pictures[0].first_row, 1u);
  EXPECT_EQ(batch->pictures[0].num_rows, 2u);
  EXPECT_EQ(batch->pooled[1], 1u);
}

TEST(StepBatchTest, RefusesPicturesThatAreNoRowsOfOneSequence) {
  const std::vector<std::function<void(PictureStep&)>> faults = {
      [](PictureStep& s) { s.pictures[0].num_rows = 0; },
      [](PictureStep& s) { s.pictures[0].num_rows = 0xFFFFFFFF; },
      [](PictureStep& s) {
        s.pictures[0] = {0, 3};
      },  // more rows than a picture has
      [](PictureStep& s) {
        s.pictures[0] = {1, 1};
      },  // a tail that is not first
      [](PictureStep& s) {
        s.pictures[0] = {0, 1};
      },  // the picture would begin at position -1
      [](PictureStep& s) { s.pictures[0].first_row = 0xFFFFFFFF; },
      [](PictureStep& s) { s.pictures[0].first_row = 2; },  // of two sequences
      [](PictureStep& s) { s.pictures[0].first_row = 3; },  // past the last row
      [](PictureStep& s) {
        s.pictures = {{0, 2}, {1, 2}};
      },
      [](PictureStep& s) {
        s.pictures = {{1, 2}, {0, 2}};
      },
      [](PictureStep& s) {
        s.pictures.resize(3, {0, 2});
      },  // more than the limit
      [](PictureStep& s) {
        s.header.after_step = 3;
        s.rows[2].feed = 1;
      },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    PictureStep step;
    faults[i](step);
    std::vector<std::byte> storage;
    EXPECT_EQ(step.Parse(storage).status().code(), absl::StatusCode::kInvalidArgument)
        << "fault " << i;
  }
}

TEST(StepBatchTest, ASequenceMayBeginWithinAPicture) {
  PictureStep step;
  step.pictures = {{0, 2}, {3, 1}};  // the last row of the one at 69
  std::vector<std::byte> storage;
  const auto batch = step.Parse(storage);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(FirstPosition(batch->pictures[0], batch->rows, 2), 0u);
  EXPECT_EQ(FirstPosition(batch->pictures[1], batch->rows, 2), 69u);
}

TEST(StepBatchTest, AWindowTableReachesToTheStartOfThePicture) {
  const auto parse = [](uint32_t picture_rows, uint32_t second_block) {
    PictureStep step;
    step.pictures = {{3, 1}};  // at position 70, whose window begins in block 2
    step.picture_rows = picture_rows;
    step.table[8] = second_block;
    std::vector<std::byte> storage;
    return step.Parse(storage).status();
  };
  EXPECT_TRUE(parse(39, kNoBlock).ok());  // from position 32
  EXPECT_EQ(parse(40, kNoBlock).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(parse(40, 3).ok());
  EXPECT_EQ(parse(56, 3).code(), absl::StatusCode::kInvalidArgument);  // from position 15
  EXPECT_EQ(parse(72, 3).code(), absl::StatusCode::kInvalidArgument);  // from position -1
}

TEST(StepBatchTest, AStepOfAVisionPlanHasPicturesAlone) {
  const StepLimits limits = VisionLimits(3, 4);
  const auto parse = [&limits](StepHeader header, std::vector<PictureEntry> pictures) {
    std::vector<RowEntry> rows(header.num_rows);
    std::vector<std::byte> area(4096), storage;
    WriteStep({header, rows, {}, {}, {}, {}, {}, pictures}, area);
    return ParseStep(area, limits, storage).status();
  };
  EXPECT_TRUE(parse({.num_pictures = 2}, {{0, 4}, {4, 4}}).ok());
  EXPECT_TRUE(parse({.num_pictures = 3}, {{0, 4}, {4, 4}, {8, 4}}).ok());
  EXPECT_FALSE(parse({}, {}).ok());
  EXPECT_FALSE(parse({.num_pictures = 4}, {{0, 4}, {4, 4}, {8, 4}, {12, 4}}).ok());
  EXPECT_FALSE(parse({.num_pictures = 1}, {{0, 3}}).ok());
  EXPECT_FALSE(parse({.num_pictures = 2}, {{4, 4}, {0, 4}}).ok());
  EXPECT_FALSE(parse({.num_pictures = 2}, {{0, 4}, {8, 4}}).ok());
  EXPECT_FALSE(parse({.num_rows = 1, .num_pictures = 1}, {{0, 4}}).ok());
  EXPECT_FALSE(parse({.after_step = 1, .num_pictures = 1}, {{0, 4}}).ok());
}

TEST(StepBatchTest, RefusesCountsLargerThanTheArea) {
  std::vector<std::byte> area = Step().Write();
  area.resize(100);
  std::vector<std::byte> storage;
  EXPECT_FALSE(ParseStep(area, Limits(), storage).ok());
  area.resize(10);
  EXPECT_FALSE(ParseStep(area, Limits(), storage).ok());
}

}  // namespace
}  // namespace tandem
