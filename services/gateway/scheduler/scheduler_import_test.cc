// Sequences that wait beside imports of KV.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "services/gateway/scheduler/scheduler_for_test.h"

namespace tandem::gateway {
namespace {

// 40 blocks of 4 tokens.  Sequence 1 runs and needs 15 of them.
class SchedulerImportTest : public ::testing::Test {
 protected:
  SchedulerImportTest() {
    EXPECT_TRUE(scheduler_->Add(PromptSpec(1, 60)).ok());
    EXPECT_EQ(Step(), (std::set<uint64_t>{1}));
  }
  // The first `num_blocks` blocks of a prompt come from elsewhere.
  void Import(uint64_t id, uint32_t num_blocks) {
    const uint32_t num_tokens = num_blocks * 4;
    const uint32_t first_window = FirstWindowBlock(num_tokens, 10, 4);
    ASSERT_EQ(scheduler_->BeginImport(id, "", PromptSpec(id, num_tokens).prompt, first_window), 0u);
    ASSERT_TRUE(scheduler_->imports().Extend(id, num_blocks).has_value());
    scheduler_->imports().Publish(id);
  }
  bool Imports(uint64_t id) { return scheduler_->imports().contains(id); }
  // The sequences that have rows in the next step.
  std::set<uint64_t> Step() {
    const ScheduledStep* const step = scheduler_->Schedule();
    if (step == nullptr) return {};
    std::set<uint64_t> ids;
    for (const ScheduledRows& rows : step->rows) {
      ids.insert(rows.sequence);
      if (rows.sequence == 2) first_position_ = rows.first_position;
    }
    scheduler_->StepDone();
    return ids;
  }

  std::unique_ptr<Scheduler> scheduler_ = MakeScheduler(SmallSchedulerOptions());
  uint32_t first_position_ = 0;  // of the rows of sequence 2
};

TEST_F(SchedulerImportTest, ASequenceGoesBeforeThoseThatCameAfterItsKv) {
  Import(2, 16);
  ASSERT_TRUE(scheduler_->Add(PromptSpec(3, 60)).ok());
  ASSERT_TRUE(scheduler_->Adopt(PromptSpec(2, 65), {}).ok());
  EXPECT_EQ(Step(), (std::set<uint64_t>{1, 2})) << "3 needs more blocks than are left";
  EXPECT_EQ(first_position_, 64u);
  EXPECT_FALSE(Imports(2));
}

TEST_F(SchedulerImportTest, ImportsOfSequencesThatAreNotHereGiveWay) {
  Import(2, 8);
  Import(4, 8);
  ASSERT_TRUE(scheduler_->Add(PromptSpec(3, 60)).ok());
  EXPECT_EQ(Step(), (std::set<uint64_t>{1, 3}));
  EXPECT_TRUE(Imports(2)) << "the blocks of one are enough";
  EXPECT_FALSE(Imports(4));
}

TEST_F(SchedulerImportTest, NoImportIsDroppedForASequenceThatDoesNotFitWithoutIt) {
  Import(2, 16);
  ASSERT_TRUE(scheduler_->Add(PromptSpec(3, 120)).ok());
  EXPECT_EQ(Step(), (std::set<uint64_t>{1}));
  EXPECT_TRUE(Imports(2));
}

// Blocks that others hold too are not free without the import.
TEST_F(SchedulerImportTest, NoImportIsDroppedForBlocksThatRunningSequencesHold) {
  const std::vector<uint32_t> computed = PromptSpec(1, 16).prompt;
  ASSERT_EQ(scheduler_->BeginImport(2, "", computed, 4), 4u);
  // 11 more blocks for 1 and 26 for 3, where 36 are free.
  ASSERT_TRUE(scheduler_->Add(PromptSpec(3, 104)).ok());
  EXPECT_EQ(Step(), (std::set<uint64_t>{1}));
  EXPECT_TRUE(Imports(2));
}

TEST_F(SchedulerImportTest, ImportsOfSequencesThatWaitBehindGiveWay) {
  for (const bool same_priority : {true, false}) {
    SCOPED_TRACE(same_priority);
    SequenceSpec first = PromptSpec(3, 60), adopted = PromptSpec(2, 65);
    if (!same_priority) adopted.priority = 1;
    // One of the same priority is behind because its KV came later.
    if (!same_priority) Import(2, 16);
    ASSERT_TRUE(scheduler_->Add(std::move(first)).ok());
    if (same_priority) Import(2, 16);
    ASSERT_TRUE(scheduler_->Adopt(std::move(adopted), {}).ok());
    EXPECT_EQ(Step(), (std::set<uint64_t>{1, 3}));
    EXPECT_FALSE(Imports(2));
    scheduler_->Remove(2);
    scheduler_->Remove(3);
    scheduler_->ForgetPrefixes();
  }
}

}  // namespace
}  // namespace tandem::gateway
