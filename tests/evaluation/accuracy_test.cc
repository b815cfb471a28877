// The demo model's answers to questions with exact answers, in three weight formats.
#include <algorithm>
#include <map>

#include "services/common/testing/paths.h"
#include "tests/evaluation/evaluation_fixture.h"
#include "tests/evaluation/evaluation_set.h"
#include "tests/support/greedy.h"

namespace tandem::evaluation {
namespace {

std::string Trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  return begin == std::string::npos ? ""
                                    : text.substr(begin, text.find_last_not_of(" \n") - begin + 1);
}

struct Score {
  int right = 0;
  int total = 0;
  double fraction() const { return total == 0 ? 0.0 : static_cast<double>(right) / total; }
};

class AccuracyTest : public EvaluationTest, public ::testing::WithParamInterface<std::string> {
 protected:
  // Greedy answers to every item, or to one of every `stride`; scores by kind, and of all under "all".
  void Evaluate(const std::string& checkpoint_path, std::map<std::string, Score>& scores,
                size_t stride = 1) {
    Place(GetParam(), checkpoint_path,
          {.max_rows = 512,
           .max_sequences = 16,
           .max_outputs = 16,
           .max_logit_outputs = 1,
           .context_len = 2048,
           .num_blocks = {1024, 1024}});
    if (IsSkipped() || HasFatalFailure()) return;
    const testing::Checkpoint& checkpoint = OpenCheckpoint(checkpoint_path);
    const ModelConfig& config = checkpoint.weights->config();
    ASSERT_OK_AND_ASSIGN(const auto tokenizer, gateway::Tokenizer::Create(checkpoint.vocabulary));
    ASSERT_OK_AND_ASSIGN(const std::vector<Item> all,
                         ReadEvaluationSet(TestDataPath("eval_set.jsonl")));
    ASSERT_EQ(all.size(), 350u);
    std::vector<Item> items;
    for (size_t i = 0; i < all.size(); i += stride) items.push_back(all[i]);
    ASSERT_OK_AND_ASSIGN(const auto prompts, RenderPrompts(*tokenizer, config, items));
    ASSERT_OK_AND_ASSIGN(const auto answers,
                         testing::DecodeGreedily(*runner_, prompts, {.max_tokens = 48}));
    for (size_t i = 0; i < items.size(); ++i) {
      std::vector<uint32_t> ids = answers[i];
      if (std::ranges::count(config.stop_token_ids, static_cast<int32_t>(ids.back())) > 0) {
        ids.pop_back();
      }
      const bool right = Trim(tokenizer->Decode(ids)) == items[i].expected;
      for (const std::string& key : {items[i].kind, std::string("all")}) {
        scores[key].right += right;
        scores[key].total += 1;
      }
    }
    for (const auto& [kind, score] : scores) {
      std::printf("%s %d/%d  ", kind.c_str(), score.right, score.total);
    }
    std::printf("\n");
  }
};

TEST_P(AccuracyTest, QuantisedWeightsAnswerAlmostAsWellAsTheOriginals) {
  std::map<std::string, Score> bf16, q8, q4;
  Evaluate(TestDataPath("demo"), bf16);
  if (IsSkipped() || HasFatalFailure()) return;
  EXPECT_GE(bf16["all"].fraction(), 0.97);
  EXPECT_EQ(bf16["recall_far"].right, 50);
  EXPECT_EQ(bf16["recall_far"].total, 50);
  Evaluate(SourcePath("models/demo/demo.Q8_0.gguf"), q8);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_NEAR(q8["all"].fraction(), bf16["all"].fraction(), 0.005);
  EXPECT_EQ(q8["recall_far"].right, 50);
  Evaluate(TestDataPath("demo.Q4_0.gguf"), q4, /*stride=*/3);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_GE(q4["all"].fraction(), 0.5) << "four bits cost some answers, not half of them";
}

INSTANTIATE_TEST_SUITE_P(Placements, AccuracyTest, ::testing::ValuesIn(PlacementNames()),
                         [](const auto& test) { return TestName(test.param); });

}  // namespace
}  // namespace tandem::evaluation
