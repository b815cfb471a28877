#include "services/gateway/scheduler/running_set.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tandem::gateway {
namespace {

constexpr uint32_t kMaxRunning = 3;

StepLimits Limits() {
  return {.max_rows = 32,
          .max_sequences = 8,
          .max_outputs = 16,
          .max_logit_outputs = 2,
          .max_table_len = 512,
          .vocab_size = 1000,
          .context_len = 128,
          .block_tokens = 4,
          .sliding_window = 10,
          .num_blocks = {10, 40}};
}

class RunningSetTest : public ::testing::Test {
 protected:
  RunningSetTest() {
    running_.SetLimits(kMaxRunning, /*chunk_rows=*/16);
    running_.BeginStep(1);
  }
  // A sequence of `num_tokens` tokens, none of them the prefix of another.
  Sequence& Make(const std::string& tenant, uint32_t num_tokens) {
    const uint64_t id = sequences_.size() + 1;
    SequenceSpec spec{.id = id};
    spec.prompt.resize(num_tokens);
    std::iota(spec.prompt.begin(), spec.prompt.end(), static_cast<uint32_t>(1000 * id));
    Tenant& owner = *tenants_.Enter({.name = tenant}, 0);
    sequences_.push_back(std::make_unique<Sequence>(std::move(spec), id, owner, pools_, true));
    return *sequences_.back();
  }
  Sequence& Run(const std::string& tenant, uint32_t num_tokens) {
    Sequence& sequence = Make(tenant, num_tokens);
    EXPECT_TRUE(running_.Fits(sequence));
    running_.Add(sequence);
    return sequence;
  }

  KvPools pools_{Limits()};
  Tenants tenants_;
  SchedulerCounters counters_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  RunningSet running_{pools_, tenants_, counters_};
};

TEST_F(RunningSetTest, HeldBackSequencesKeepTheirPlaces) {
  Sequence& first = Run("a", 1);
  Run("a", 1);
  EXPECT_TRUE(running_.HasPlace(first.tenant));
  running_.HoldBack(Make("a", 1));
  EXPECT_FALSE(running_.HasPlace(first.tenant));
  EXPECT_FALSE(running_.HasAnyPlace());
  running_.BeginStep(2);
  EXPECT_TRUE(running_.HasPlace(first.tenant));
  Run("a", 1);
  EXPECT_FALSE(running_.HasPlace(first.tenant));
  EXPECT_TRUE(running_.Remove(first));
  EXPECT_FALSE(running_.Remove(first));
  EXPECT_TRUE(running_.HasPlace(first.tenant));
}

TEST_F(RunningSetTest, ASequenceFitsBesideWhatTheRunningOnesStillNeed) {
  EXPECT_TRUE(running_.Fits(Make("a", 100))) << "no other runs";
  Run("a", 16);
  EXPECT_TRUE(running_.Fits(Make("a", 24))) << "4 + 6 of 10 blocks";
  EXPECT_FALSE(running_.Fits(Make("a", 25)));
  running_.HoldBack(Make("a", 8));
  EXPECT_TRUE(running_.Fits(Make("a", 16)));
  EXPECT_FALSE(running_.Fits(Make("a", 17))) << "2 blocks are kept for the one held back";
}

TEST_F(RunningSetTest, APrefixIsLookedUpOnceWhileNothingChanges) {
  const Sequence& sequence = Make("a", 16);
  for (int i = 0; i < 3; ++i) running_.Fits(sequence);
  EXPECT_EQ(counters_.prefix_lookups, 1u);
  running_.Fits(Make("a", 16));
  running_.Fits(sequence);
  EXPECT_EQ(counters_.prefix_lookups, 3u);
}

TEST_F(RunningSetTest, AmongOneTenantsSequencesTheYoungestGivesUpItsBlocks) {
  const Sequence& oldest = Run("a", 4);
  const Sequence& middle = Run("a", 4);
  const Sequence& youngest = Run("a", 4);
  EXPECT_EQ(running_.VictimForRow(oldest, false), &youngest);
  EXPECT_EQ(running_.VictimForRow(middle, false), &youngest);
  EXPECT_EQ(running_.VictimForRow(youngest, false), nullptr);
}

TEST_F(RunningSetTest, AWaitingSequencePreemptsTheYoungestOfATenantAboveItsShare) {
  for (int i = 0; i < 2; ++i) Run("a", 4);
  const Sequence& youngest = Run("a", 4);
  const Sequence& own = Make("a", 4);
  EXPECT_FALSE(running_.CouldMakeWayFor(own)) << "there is one tenant";
  const Sequence& waiting = Make("b", 4);
  EXPECT_EQ(running_.VictimFor(waiting), nullptr) << "each must have had a row first";
  running_.BeginStep(2);
  EXPECT_TRUE(running_.CouldMakeWayFor(waiting));
  EXPECT_EQ(running_.VictimFor(waiting), &youngest);
  EXPECT_EQ(running_.VictimFor(own), nullptr);
}

}  // namespace
}  // namespace tandem::gateway
