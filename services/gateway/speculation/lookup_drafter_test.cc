#include "services/gateway/speculation/lookup_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace tandem::gateway {
namespace {

using Tokens = std::vector<uint32_t>;

// A drafter with one sequence.
class One {
 public:
  explicit One(const Tokens& prompt, const Tokens& prediction = {}) : decided_(prompt) {
    drafter_.Begin({.id = 7, .prompt = prompt, .sampling = &params_, .prediction = prediction});
    std::vector<DraftChain> none;
    for (int i = 0; i < 20; ++i) drafter_.Take(absl::InfinitePast(), none);
  }
  void Decide(const Tokens& tokens) {
    decided_.insert(decided_.end(), tokens.begin(), tokens.end());
    drafter_.Decided(7, tokens, 0);
  }
  DraftChain Ask(uint32_t max_guesses = 4) {
    const DraftRequest request{.sequence = 7,
                               .num_decided = static_cast<uint32_t>(decided_.size()),
                               .max_guesses = max_guesses};
    drafter_.Ask({&request, 1});
    std::vector<DraftChain> chains;
    drafter_.Take(absl::InfinitePast(), chains);
    EXPECT_EQ(chains.size(), 1u);
    EXPECT_EQ(chains[0].first_position, decided_.size());
    EXPECT_EQ(chains[0].tokens.size(), chains[0].probabilities.size());
    return chains[0];
  }
  LookupDrafter& drafter() { return drafter_; }

 private:
  const SamplingParams params_;
  Tokens decided_;
  LookupDrafter drafter_;
};

TEST(LookupDrafterTest, GuessesWhatFollowedTheLongestMatch) {
  One one({1, 2, 3, 4, 5, 6, 9, 3, 4, 8});
  one.Decide({2, 3, 4});
  EXPECT_EQ(one.Ask(3).tokens, Tokens({5, 6, 9})) << "2 3 4, not the later 3 4";
}

TEST(LookupDrafterTest, NewTextHasNoGuesses) {
  One one({1, 2, 3, 4});
  one.Decide({5, 6});
  EXPECT_TRUE(one.Ask().tokens.empty());
  one.Decide({4});
  EXPECT_TRUE(one.Ask().tokens.empty()) << "one token alone is no match";
}

TEST(LookupDrafterTest, TextThatRepeatsItselfGoesOnRepeating) {
  One one({9, 1, 2, 1, 2});
  one.Decide({1, 2});
  EXPECT_EQ(one.Ask(7).tokens, Tokens({1, 2, 1, 2, 1, 2, 1}));
}

TEST(LookupDrafterTest, FollowsAPredictionFromTheAnswersStart) {
  One one({1, 2, 3}, {10, 11, 12, 13, 14});
  EXPECT_EQ(one.Ask(3).tokens, Tokens({10, 11, 12}));
  one.Decide({10, 11});
  EXPECT_EQ(one.Ask(8).tokens, Tokens({12, 13, 14})) << "no guess beyond its end";
  one.Decide({50});
  EXPECT_TRUE(one.Ask().tokens.empty()) << "the answer left it";
  one.Decide({12, 13});
  EXPECT_EQ(one.Ask().tokens, Tokens({14})) << "and has come back";
}

TEST(LookupDrafterTest, LearnsHowFarMatchesCanBeTrusted) {
  std::mt19937 random(3);
  Tokens prompt;
  for (int i = 0; i < 400; ++i) prompt.push_back(random() % 4);
  One one(prompt);
  const auto first = [&one] {
    const DraftChain chain = one.Ask(1);
    return chain.tokens.empty() ? 0.0f : chain.probabilities[0];
  };
  for (int i = 0; i < 600; ++i) one.Decide({static_cast<uint32_t>(random() % 4)});
  EXPECT_LT(first(), 0.45f) << "one in four is right";
  for (int i = 0; i < 200; ++i) one.Decide({100u + i % 10});
  EXPECT_GT(first(), 0.9f) << "all are right";
}

TEST(LookupDrafterTest, LongTextsAreShortenedAndStaySearched) {
  std::mt19937 random(4);
  Tokens prompt(3 * LookupDrafter::kMaxTokens);
  for (uint32_t& token : prompt) token = random() % 200000;
  One one(prompt);
  const Tokens quoted(prompt.end() - 40, prompt.end() - 20);
  one.Decide(Tokens(quoted.begin(), quoted.begin() + 10));
  EXPECT_EQ(one.Ask(5).tokens, Tokens(quoted.begin() + 10, quoted.begin() + 15));
  // Past the bound, within the answer.
  Tokens answer(LookupDrafter::kMaxTokens * 3 / 4);
  for (uint32_t& token : answer) token = random() % 200000;
  for (size_t i = 0; i < answer.size(); ++i) {
    one.Decide({answer[i]});
    if (i % 64 == 0) (void)one.Ask(1);
  }
  one.Decide(Tokens(answer.end() - 30, answer.end() - 20));
  EXPECT_EQ(one.Ask(5).tokens, Tokens(answer.end() - 20, answer.end() - 15));
}

TEST(LookupDrafterTest, AnswersForTextThatItHasNotReadYetAreEmptyAndLaterRight) {
  Tokens prompt(LookupDrafter::kTokensATake * 3);
  std::iota(prompt.begin(), prompt.end(), 0u);
  LookupDrafter drafter;
  const SamplingParams params;
  drafter.Begin({.id = 1, .prompt = prompt, .sampling = &params});
  drafter.Decided(1, Tokens({5, 6}), 0);
  std::vector<DraftChain> chains;
  const DraftRequest request{
      .sequence = 1, .num_decided = static_cast<uint32_t>(prompt.size() + 2), .max_guesses = 2};
  drafter.Ask({&request, 1});
  drafter.Take(absl::InfinitePast(), chains);
  ASSERT_EQ(chains.size(), 1u);
  EXPECT_TRUE(chains[0].tokens.empty());
  for (int i = 0; i < 5; ++i) drafter.Take(absl::InfinitePast(), chains);
  chains.clear();
  drafter.Ask({&request, 1});
  drafter.Take(absl::InfinitePast(), chains);
  ASSERT_EQ(chains.size(), 1u);
  EXPECT_EQ(chains[0].tokens, Tokens({7, 8}));
}

TEST(LookupDrafterTest, ForgetsSequencesThatEnd) {
  One one({1, 2, 3, 1, 2});
  one.drafter().End(7);
  const DraftRequest request{.sequence = 7, .num_decided = 5, .max_guesses = 2};
  one.drafter().Ask({&request, 1});
  std::vector<DraftChain> chains;
  one.drafter().Take(absl::InfinitePast(), chains);
  EXPECT_TRUE(chains.empty());
}

}  // namespace
}  // namespace tandem::gateway
