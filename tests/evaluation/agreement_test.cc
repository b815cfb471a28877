// Compares placements with each other: the demo model's answers, token by token.
#include "services/common/testing/paths.h"
#include "tests/evaluation/evaluation_fixture.h"
#include "tests/evaluation/evaluation_set.h"
#include "tests/support/greedy.h"

namespace tandem::evaluation {
namespace {

class AgreementTest : public EvaluationTest {
 protected:
  // Greedy answers to the first items of the evaluation set.
  void Answer(const std::string& placement, std::vector<std::vector<uint32_t>>& answers) {
    const std::string path = SourcePath("models/demo/demo.Q8_0.gguf");
    Place(placement, path, {.max_rows = 256, .context_len = 1024, .num_blocks = {512, 512}});
    if (IsSkipped() || HasFatalFailure()) return;
    const testing::Checkpoint& checkpoint = OpenCheckpoint(path);
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, gateway::Tokenizer::Create(checkpoint.vocabulary));
    ASSERT_OK_AND_ASSIGN(std::vector<Item> items,
                         ReadEvaluationSet(TestDataPath("eval_set.jsonl")));
    items.resize(49);  // seven of each kind
    ASSERT_OK_AND_ASSIGN(const auto prompts,
                         RenderPrompts(*tokenizer, checkpoint.weights->config(), items));
    ASSERT_OK_AND_ASSIGN(answers, testing::DecodeGreedily(*runner_, prompts, {.max_tokens = 48}));
  }
};

TEST_F(AgreementTest, EveryPlacementGivesTheSameTokens) {
  std::vector<std::vector<uint32_t>> expected;
  for (const std::string& placement : PlacementNames()) {
    SCOPED_TRACE(placement);
    std::vector<std::vector<uint32_t>> answers;
    Answer(placement, answers);
    if (IsSkipped() || HasFatalFailure()) return;
    if (expected.empty()) expected = answers;
    EXPECT_EQ(answers, expected);
  }
}

}  // namespace
}  // namespace tandem::evaluation
