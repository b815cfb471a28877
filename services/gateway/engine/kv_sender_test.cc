#include "services/gateway/engine/kv_sender.h"

#include <gtest/gtest.h>

#include "services/gateway/engine/testing/fake_executor.h"

namespace tandem::gateway {
namespace {

using testing::FakeExecutor;
using testing::FakeExecutorOptions;

constexpr uint64_t kRequest = 5;
constexpr uint32_t kPromptTokens = 150;

class KvSenderTest : public ::testing::Test {
 protected:
  static FakeExecutorOptions Options() {
    FakeExecutorOptions options;
    options.limits.kv_area_bytes = 30000;
    return options;
  }
  KvSenderTest() {
    SequenceSpec spec{.id = kRequest};
    for (uint32_t i = 0; i < kPromptTokens; ++i) spec.prompt.push_back(4 + i);
    EXPECT_TRUE(scheduler_->Add(spec).ok());
    ComputeRows();
  }
  // One step, of a part of the prompt.
  void ComputeRows() {
    ASSERT_NE(scheduler_->Schedule(), nullptr);
    scheduler_->StepDone();
  }
  // The hand-over that is offered, or null.
  std::shared_ptr<KvHandOver> Offer(absl::Time now) {
    std::shared_ptr<KvHandOver> offered;
    sender_.OfferKv(kRequest, "", kPromptTokens, now, [&offered](const auto& hand_over) {
      offered = hand_over;
      return true;
    });
    return offered;
  }

  FakeExecutor executor_{Options()};
  std::unique_ptr<Scheduler> scheduler_ =
      Scheduler::Create({.limits = Options().limits, .max_rows = 64, .chunk_rows = 32}).value();
  KvSender sender_{executor_, *scheduler_};
};

TEST_F(KvSenderTest, WholeBlocksAreReadAsTheyAreComputed) {
  const absl::Time now = absl::UnixEpoch();
  const auto hand_over = Offer(now);
  ASSERT_NE(hand_over, nullptr);
  hand_over->Accept(0, [] {});
  sender_.Update(now);
  ASSERT_TRUE(sender_.copy_due());
  while (sender_.copy_due()) ASSERT_TRUE(sender_.CopyOnce().ok());
  EXPECT_GT(hand_over->num_waiting(), 0u);
  while (auto piece = hand_over->Take()) EXPECT_LE(piece->end_block, 4u) << "32 tokens";
  ComputeRows();
  sender_.Update(now);
  EXPECT_TRUE(sender_.copy_due());
  EXPECT_EQ(hand_over->end(), KvHandOver::End::kOpen);
}

// After NaN logits of another sequence no block is published any more, so none would follow.
TEST_F(KvSenderTest, AHandOverOfForgottenKvIsAbandoned) {
  absl::Time now = absl::UnixEpoch();
  const auto hand_over = Offer(now);
  ASSERT_NE(hand_over, nullptr);
  hand_over->Accept(0, [] {});
  sender_.Update(now);
  scheduler_->ForgetPrefixes();
  EXPECT_TRUE(scheduler_->Published(kRequest).forgotten);
  sender_.Update(now);
  EXPECT_EQ(hand_over->end(), KvHandOver::End::kBadKv);
  EXPECT_FALSE(sender_.copy_due());
  // The sequence goes on here, and is not offered again.
  ComputeRows();
  now += absl::Minutes(1);
  ASSERT_TRUE(sender_.ShouldOffer(kRequest, now));
  EXPECT_EQ(Offer(now), nullptr);
}

TEST_F(KvSenderTest, AHandOverWhoseBlocksHaveAllBeenReadGoesOn) {
  for (uint32_t rows = 32; rows < kPromptTokens; rows += 32) ComputeRows();
  const absl::Time now = absl::UnixEpoch();
  const auto hand_over = Offer(now);
  ASSERT_NE(hand_over, nullptr);
  hand_over->Accept(kPromptTokens / executor_.limits().block_tokens, [] {});
  sender_.Update(now);
  scheduler_->ForgetPrefixes();
  sender_.Update(now);
  EXPECT_EQ(hand_over->end(), KvHandOver::End::kOpen);
  EXPECT_TRUE(hand_over->finished());
}

}  // namespace
}  // namespace tandem::gateway
