#include "tests/bench/step_runner.h"

#include <gtest/gtest.h>

#include <set>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/common/testing/status_matchers.h"
#include "services/gpu_worker/stages/gpu_worker.h"

namespace tandem::bench {
namespace {

TEST(StepRunnerTest, DecodesTheSameTokensQueuedAsOneByOne) {
  const auto worker = gpu::GpuWorker::Create({.validation = true});
  if (worker.status().code() == absl::StatusCode::kNotFound) GTEST_SKIP() << worker.status();
  ASSERT_OK(worker.status());
  ASSERT_TRUE((*worker)->description().feeds_steps);
  constexpr uint32_t kTokens = 20;
  const ModelConfig config = testing::MakeConfig({});
  // With a head of its own: tied to the embedding, every token leads to itself.
  const auto weights = testing::RandomWeightSet(config, {.separate_head = true});
  ASSERT_OK_AND_ASSIGN(const auto cases, ParseCases("d3@21,p11"));
  testing::RunLimits limits = LimitsFor(config, cases, 8, kTokens);
  limits.num_lanes = 2;
  ASSERT_OK_AND_ASSIGN(
      const auto runner,
      testing::PlanRunner::Create(weights, {worker->get()}, testing::WholeModel(config), limits));
  std::vector<CaseResult> decoded;
  for (const bool queue_steps : {false, true}) {
    StepRunner steps(*runner, *weights,
                     {.tokens = kTokens, .repetitions = 2, .queue_steps = queue_steps});
    ASSERT_OK_AND_ASSIGN(CaseResult decode, steps.Measure(cases[0]));
    EXPECT_EQ(decode.queued, queue_steps);
    decoded.push_back(std::move(decode));
    ASSERT_OK_AND_ASSIGN(const CaseResult prompt, steps.Measure(cases[1]));
    EXPECT_FALSE(prompt.queued);
  }
  ASSERT_EQ(decoded[0].tokens.size(), 3 * kTokens);
  EXPECT_EQ(decoded[1].tokens, decoded[0].tokens);
  const std::set<uint32_t> distinct(decoded[0].tokens.begin(), decoded[0].tokens.end());
  EXPECT_GT(distinct.size(), 5u) << "tokens must show whether they were the ones fed";
  for (const CaseResult& result : decoded) {
    EXPECT_GT(result.busy, 0);
    EXPECT_GT(result.median.device, 0);
    EXPECT_GT(result.median.hand_over, 0);
    EXPECT_GT(result.median.stages[static_cast<size_t>(StageKind::kFfn)], 0);
    EXPECT_GE(result.slowest_wall, result.median.wall);
  }
}

}  // namespace
}  // namespace tandem::bench
