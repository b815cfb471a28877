// Several plans on one worker: each has its own weights, KV cache, recordings and exchange region.
#include "tests/conformance/worker_suite.h"

namespace tandem::conformance {
namespace {

constexpr uint32_t kMain = 0, kDraft = 1;

class PlansTest : public WorkerSuite {
 protected:
  void TearDown() override {
    if (!IsSkipped()) worker().Unload(kDraft);
  }
  absl::StatusOr<std::unique_ptr<PlanRunner>> RunMain() { return RunWhole(weights_, {}); }
  absl::StatusOr<std::unique_ptr<PlanRunner>> RunDraft() {
    return RunWhole(draft_weights_, {.max_rows = 16, .plan = kDraft});
  }

  const ModelConfig config_ = testing::MakeConfig({});
  const ModelConfig draft_config_ = testing::MakeConfig({.num_layers = 1, .ffn_dim = 96});
  const std::shared_ptr<const WeightSet> weights_ = testing::RandomWeightSet(config_);
  const std::shared_ptr<const WeightSet> draft_weights_ =
      testing::RandomWeightSet(draft_config_, {.seed = 2});
  const std::vector<uint32_t> tokens_ = MakeTokens(config_, 29, 3);
};

// Feeds a sequence of its own to a plan, some rows a step.
class Feeder {
 public:
  explicit Feeder(PlanRunner& runner)
      : runner_(runner), steps_(runner.limits()), sequence_(steps_.AddSequence()) {}

  void Feed(const std::vector<uint32_t>& tokens) {
    steps_.Begin();
    steps_.set_want_logits(true);
    const uint32_t first = steps_.AddRows(sequence_, tokens);
    for (uint32_t i = 0; i < tokens.size(); ++i) steps_.AddOutput(first + i);
    ASSERT_OK(runner_.RunStep(steps_.batch()));
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      logits.insert(logits.end(), runner_.Logits(i).begin(), runner_.Logits(i).end());
    }
  }

  std::vector<float> logits;

 private:
  PlanRunner& runner_;
  StepBuilder steps_;
  uint32_t sequence_;
};

TEST_F(PlansTest, StepsOfTwoModelsInTurnHaveTheBitsOfEachAlone) {
  std::vector<float> alone, draft_alone;
  const auto feed = [this](Feeder& feeder, size_t at, size_t n) {
    feeder.Feed({tokens_.begin() + at, tokens_.begin() + at + n});
  };
  {
    ASSERT_OK_AND_ASSIGN(const auto runner, RunMain());
    Feeder feeder(*runner);
    for (size_t at = 0; at < 28; at += 7) feed(feeder, at, 7);
    alone = feeder.logits;
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto runner, RunDraft());
    Feeder feeder(*runner);
    for (size_t at = 0; at < 28; at += 7) feed(feeder, at, 7);
    draft_alone = feeder.logits;
    worker().Unload(kDraft);
  }
  ASSERT_OK_AND_ASSIGN(const auto runner, RunMain());
  ASSERT_OK_AND_ASSIGN(const auto draft_runner, RunDraft());
  Feeder feeder(*runner), draft(*draft_runner);
  for (size_t at = 0; at < 28; at += 7) {
    feed(draft, at, 7);
    feed(feeder, at, 7);
  }
  EXPECT_EQ(feeder.logits, alone);
  EXPECT_EQ(draft.logits, draft_alone);
}

TEST_F(PlansTest, UnloadingOneLeavesTheOtherWithItsCache) {
  ASSERT_OK_AND_ASSIGN(const auto runner, RunMain());
  ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, LogitsOfSequence(*runner, tokens_, 10));
  ASSERT_OK_AND_ASSIGN(const auto again, RunMain());
  Feeder feeder(*again);
  feeder.Feed({tokens_.begin(), tokens_.begin() + 10});
  {
    ASSERT_OK_AND_ASSIGN(const auto draft, RunDraft());
    ASSERT_OK(LogitsOfSequence(*draft, tokens_, 16));
  }
  worker().Unload(kDraft);
  feeder.Feed({tokens_.begin() + 10, tokens_.begin() + 20});
  {
    ASSERT_OK_AND_ASSIGN(const auto draft, RunDraft());  // in the same place again
    ASSERT_OK(LogitsOfSequence(*draft, tokens_, 16));
  }
  feeder.Feed({tokens_.begin() + 20, tokens_.end()});
  EXPECT_EQ(feeder.logits, expected);
}

TEST_F(PlansTest, AFailedLoadLeavesTheOtherPlan) {
  if (!Offers(StageKind::kAttend)) GTEST_SKIP() << "no Attend";
  ASSERT_OK_AND_ASSIGN(const auto runner, RunMain());
  Feeder feeder(*runner);
  feeder.Feed({tokens_.begin(), tokens_.begin() + 10});
  EXPECT_THAT(
      RunWhole(draft_weights_, {.num_blocks = {1u << 31, 1u << 31}, .plan = kDraft}).status(),
      testing::HasCode(absl::StatusCode::kResourceExhausted));
  feeder.Feed({tokens_.begin() + 10, tokens_.end()});
  ASSERT_OK_AND_ASSIGN(const auto again, RunMain());
  Feeder expected(*again);
  expected.Feed({tokens_.begin(), tokens_.begin() + 10});
  expected.Feed({tokens_.begin() + 10, tokens_.end()});
  EXPECT_EQ(feeder.logits, expected.logits);
}

}  // namespace
}  // namespace tandem::conformance
