// Prefixes of the cache that end within a picture.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "services/gateway/scheduler/scheduler_for_test.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kPictureRows = 6;
constexpr uint32_t kFirst = 5;  // rows [5, 11): a block ends at 8

class PictureReuseTest : public ::testing::Test {
 protected:
  void Start(uint32_t sliding_window, uint32_t max_pictures) {
    options_.limits.picture_rows = kPictureRows;
    options_.limits.sliding_window = sliding_window;
    options_.limits.max_pictures = max_pictures;
    scheduler_ = Scheduler::Create(options_).value();
    picture_ = std::make_shared<Picture>(Picture{.key = kFirstPictureKey});
    picture_->soft_tokens.resize(2 * kPictureRows);
    std::iota(picture_->soft_tokens.begin(), picture_->soft_tokens.end(), 0.0f);
  }
  // The picture, then a question of its own.
  void Add(uint32_t id) {
    SequenceSpec spec{.id = id, .prompt = std::vector<uint32_t>(16, 9)};
    std::fill_n(spec.prompt.begin() + kFirst, kPictureRows, picture_->key);
    std::fill(spec.prompt.begin() + kFirst + kPictureRows, spec.prompt.end(), 100 + id);
    spec.pictures = {{kFirst, kPictureRows, picture_}};
    spec.max_answer = 1;
    ASSERT_TRUE(scheduler_->Add(std::move(spec)).ok());
  }
  // Also checks that the step is one that workers take.
  const ScheduledStep* Schedule() {
    const ScheduledStep* step = scheduler_->Schedule();
    if (step == nullptr) return nullptr;
    std::vector<std::byte> area(StepAreaBytes(options_.limits)), storage;
    WriteStep(step->batch, area);
    EXPECT_TRUE(ParseStep(area, options_.limits, storage).ok())
        << ParseStep(area, options_.limits, storage).status();
    return step;
  }
  void Finish(const ScheduledStep& step) {
    scheduler_->StepDone();
    for (const ScheduledOutput& output : step.outputs) {
      scheduler_->Append(output.sequence, 7, {});
      scheduler_->Remove(output.sequence);
    }
  }
  void Serve(uint32_t id) {
    Add(id);
    while (const ScheduledStep* step = Schedule()) Finish(*step);
  }

  SchedulerOptions options_ = SmallSchedulerOptions();
  std::shared_ptr<Picture> picture_;
  std::unique_ptr<Scheduler> scheduler_;
};

// Windows narrower and wider than the picture.
TEST_F(PictureReuseTest, AnotherQuestionBeginsWithinThePicture) {
  for (const uint32_t window : {1u, 3u, 10u}) {
    Start(window, 2);
    Serve(1);
    Add(2);
    const ScheduledStep* step = Schedule();
    ASSERT_NE(step, nullptr);
    EXPECT_EQ(step->rows[0].first_position, 8u);
    EXPECT_EQ(step->rows[0].num_rows, 8u);
    ASSERT_EQ(step->pictures.size(), 1u);
    EXPECT_EQ(step->batch.pictures[0].first_row, 0u);
    EXPECT_EQ(step->batch.pictures[0].num_rows, 3u);
    const std::span<const float> soft_tokens = step->pictures[0].soft_tokens;
    EXPECT_EQ(std::vector<float>(soft_tokens.begin(), soft_tokens.end()),
              (std::vector<float>{6, 7, 8, 9, 10, 11}));
    const uint32_t* window_table =
        &step->batch.block_table[step->batch.sequences[0].table_offset[kWindowGroup]];
    EXPECT_NE(window_table[1], kNoBlock) << "window " << window;
    Finish(*step);
  }
}

TEST_F(PictureReuseTest, AStepHasNoMorePicturesThanItsLimits) {
  Start(10, 2);
  Serve(1);
  for (uint32_t id = 2; id <= 6; ++id) Add(id);
  std::vector<size_t> num_pictures;
  while (const ScheduledStep* step = Schedule()) {
    num_pictures.push_back(step->pictures.size());
    Finish(*step);
  }
  EXPECT_EQ(num_pictures, (std::vector<size_t>{2, 2, 1}));
}

// The picture's first rows lie in a block whose window half is evicted.
TEST_F(PictureReuseTest, WithoutTheFirstRowsAPictureIsComputedAnew) {
  options_.limits.num_blocks[kWindowGroup] = 5;
  Start(1, 2);
  Serve(1);
  SequenceSpec text{.id = 2, .prompt = std::vector<uint32_t>(18, 3), .max_answer = 1};
  ASSERT_TRUE(scheduler_->Add(std::move(text)).ok());
  while (const ScheduledStep* step = Schedule()) Finish(*step);
  Add(3);
  const ScheduledStep* step = Schedule();
  ASSERT_NE(step, nullptr);
  ASSERT_EQ(step->pictures.size(), 1u);
  EXPECT_EQ(step->batch.pictures[0].num_rows, kPictureRows);
  Finish(*step);
}

// Steps with few rows beside answers still have room for a whole picture now and then.
TEST_F(PictureReuseTest, APictureHasItsTurnBesideAnswersThatLeaveItNoRows) {
  Start(/*sliding_window=*/10, /*max_pictures=*/2);
  SequenceSpec answer = PromptSpec(1, 3);
  answer.max_answer = 100;
  ASSERT_TRUE(scheduler_->Add(std::move(answer)).ok());
  const auto finish = [&](const ScheduledStep& step) {
    scheduler_->StepDone();
    for (const ScheduledOutput& output : step.outputs) scheduler_->Append(output.sequence, 7, {});
  };
  finish(*scheduler_->Schedule());
  Add(2);
  std::vector<uint32_t> rows_of_prompt;
  for (int i = 0; i < 12; ++i) {
    const ScheduledStep* step = scheduler_->Schedule({.prompt_rows = [](uint32_t) { return 0u; }});
    ASSERT_NE(step, nullptr);
    EXPECT_GE(step->outputs.size(), 1u) << "the answer goes on";
    for (const ScheduledRows& rows : step->rows) {
      if (rows.sequence == 2 && rows.first_position < 16) rows_of_prompt.push_back(rows.num_rows);
    }
    finish(*step);
  }
  EXPECT_THAT(rows_of_prompt, ::testing::Contains(::testing::Ge(kPictureRows)));
}

}  // namespace
}  // namespace tandem::gateway
