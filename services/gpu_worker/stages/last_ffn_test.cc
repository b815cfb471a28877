// The last layer's Ffn, computed for the output rows alone.
#include <algorithm>

#include "services/common/testing/model_configs.h"
#include "services/common/testing/random_weights.h"
#include "services/gpu_worker/stages/gpu_worker_for_test.h"
#include "services/gpu_worker/stages/segment_program.h"

namespace tandem::gpu {
namespace {

// What a step over `tokens` of a new sequence says of its rows `outputs`.
std::vector<OutputResult> Results(PlanRunner& runner, StepBuilder& steps,
                                  const std::vector<uint32_t>& tokens,
                                  const std::vector<uint32_t>& outputs, bool pooled = false) {
  const uint32_t sequence = steps.AddSequence();
  steps.Begin();
  steps.set_num_candidates(8);
  steps.AddRows(sequence, tokens);
  if (pooled) steps.PoolLastRows();
  for (const uint32_t row : outputs) steps.AddOutput(row, row % runner.config().vocab_size);
  EXPECT_OK(runner.RunStep(steps.batch()));
  steps.RemoveSequence(sequence);
  std::vector<OutputResult> results;
  for (uint32_t o = 0; o < outputs.size(); ++o) results.push_back(runner.Output(o));
  return results;
}

bool SameBits(const OutputResult& a, const OutputResult& b) {
  return a.log_sum_exp == b.log_sum_exp && a.target_logit == b.target_logit &&
         std::equal(a.candidates, a.candidates + 8, b.candidates,
                    [](const Candidate& x, const Candidate& y) {
                      return x.token == y.token && x.logit == y.logit;
                    });
}

TEST_F(GpuWorkerTest, FewOutputsAreWhatTheyAreAmongAll) {
  Open({.validation = true, .adjust_tuning = UsePlainKernels});
  const ModelConfig config = testing::MakeConfig({.num_layers = 3});
  const uint32_t head = NumStages(config.num_layers) - 1;
  const PortMask handed = InputsOf(StageKind::kFfn);
  const std::vector<Segment> cut = {{0, 0, 0, head - 2, 0, handed},
                                    {0, 0, head - 1, head, handed, 0}};
  const auto weights = testing::RandomWeightSet(config, {.dtype = DType::kQ8_0});
  for (const auto& segments : {testing::WholeModel(config), cut}) {
    SCOPED_TRACE(segments.size());
    ASSERT_OK_AND_ASSIGN(const auto runner,
                         PlanRunner::Create(weights, {worker_.get()}, segments, {}));
    StepBuilder steps(runner->limits());
    const std::vector<uint32_t> tokens = Tokens(40, config.vocab_size, 3);
    std::vector<uint32_t> every(tokens.size());
    for (uint32_t i = 0; i < every.size(); ++i) every[i] = i;
    const std::vector<OutputResult> all = Results(*runner, steps, tokens, every);
    // In order, so that the outputs' rows are taken alone; in others; twice; pooled.
    const std::vector<std::pair<std::vector<uint32_t>, bool>> cases = {{{39}, false},
                                                                       {{0, 1, 2, 38, 39}, false},
                                                                       {{17, 3}, false},
                                                                       {{5, 5, 6}, false},
                                                                       {{12, 39}, true}};
    for (const auto& [outputs, pooled] : cases) {
      const auto results = Results(*runner, steps, tokens, outputs, pooled);
      for (size_t o = 0; o < outputs.size(); ++o) {
        EXPECT_TRUE(SameBits(results[o], all[outputs[o]]))
            << outputs[o] << " of " << outputs.size();
      }
    }
  }
}

// Of a step without outputs the KV cache is what the next one finds.
TEST_F(GpuWorkerTest, AStepWithoutOutputsLeavesItsKeysAndValues) {
  Open({.validation = true, .adjust_tuning = UsePlainKernels});
  const ModelConfig config = testing::MakeConfig({.num_layers = 3});
  ASSERT_OK_AND_ASSIGN(const auto runner,
                       PlanRunner::Create(testing::RandomWeightSet(config), {worker_.get()},
                                          testing::WholeModel(config), {}));
  StepBuilder steps(runner->limits());
  const std::vector<uint32_t> tokens = Tokens(40, config.vocab_size, 3);
  const OutputResult expected = Results(*runner, steps, tokens, {39})[0];
  const uint32_t sequence = steps.AddSequence();
  for (const int first : {0, 20}) {
    steps.Begin();
    steps.set_num_candidates(8);
    steps.AddRows(sequence, {tokens.begin() + first, tokens.begin() + first + 20});
    if (first == 20) steps.AddOutput(19, 39);
    ASSERT_OK(runner->RunStep(steps.batch()));
  }
  EXPECT_TRUE(SameBits(runner->Output(0), expected));
}

TEST(StepShapeTest, SaysWhetherOutputsRiseSoThatNoRowHasTwo) {
  const auto rise = [](const std::vector<OutputEntry>& outputs) {
    return StepShape::Of({.outputs = outputs}, {}).outputs_rise;
  };
  EXPECT_TRUE(rise({}));
  EXPECT_TRUE(rise({{7}}));
  EXPECT_TRUE(rise({{2}, {7}, {9}}));
  EXPECT_FALSE(rise({{2}, {7}, {7}}));
  EXPECT_FALSE(rise({{7}, {2}, {7}}));
}

}  // namespace
}  // namespace tandem::gpu
