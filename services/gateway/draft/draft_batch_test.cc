// Chains against the model's own continuation, computed without any KV cache.
#include "services/gateway/draft/draft_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "services/common/testing/status_matchers.h"
#include "services/gateway/engine/testing/fake_executor.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Tokens = std::vector<uint32_t>;

constexpr uint32_t kFirstLetter = testing::kToyFirstByte + 257;

// A batch over the toy model, whose paged KV cache gives other tokens after any mistake.
class DraftBatchTest : public ::testing::Test {
 protected:
  explicit DraftBatchTest(const StepLimits& limits = testing::ToyLimits())
      : limits_(limits), executor_({.limits = limits, .queue_steps = false}) {
    greedy_.temperature = 0;
    vocabularies_ = {
        .target_size = limits.vocab_size, .draft_size = limits.vocab_size, .unknown_token = 1};
    batch_.Reset(limits_, vocabularies_);
  }

  void Begin(uint64_t id, const Tokens& prompt, const SamplingParams& sampling) {
    texts_[id] = prompt;
    prompt_lens_[id] = static_cast<uint32_t>(prompt.size());
    batch_.Begin({.id = id, .prompt = prompt, .sampling = &sampling});
  }
  void Decide(uint64_t id, const Tokens& tokens) {
    texts_[id].insert(texts_[id].end(), tokens.begin(), tokens.end());
    batch_.Decided(id, tokens);
  }
  void Ask(uint64_t id, uint32_t max_guesses) {
    batch_.Ask({.sequence = id,
                .num_decided = static_cast<uint32_t>(texts_.at(id).size()),
                .max_guesses = max_guesses});
  }
  // One step; returns its rows, 0: there was none.
  uint32_t Step() {
    StepBatch step;
    if (!batch_.Build(++step_id_, step)) return 0;
    const uint32_t rows = step.header.num_rows;
    WriteStep(step, executor_.StepArea(0));
    executor_.Submit({.lane = 0, .step_id = step_id_});
    EXPECT_OK(executor_.Wait().status());
    batch_.TakeResults(
        [this](uint32_t o) -> const OutputResult& { return executor_.Output(0, o); });
    return rows;
  }
  // Steps until every chain has ended; returns the rows of each.
  Tokens StepAll() {
    Tokens rows;
    while (batch_.num_asked() > 0) rows.push_back(Step());
    return rows;
  }
  // The chains that have ended, by sequence.
  std::map<uint64_t, DraftChain> Chains() {
    std::map<uint64_t, DraftChain> by_id;
    for (DraftChain& chain : batch_.chains) by_id[chain.sequence] = std::move(chain);
    batch_.chains.clear();
    return by_id;
  }
  // What the model says after `tokens`, by the target's sampler.
  Tokens Continuation(Tokens tokens, uint32_t prompt_len, const SamplingParams& sampling,
                      uint32_t n) const {
    Sampler sampler(sampling, {}, 0);
    sampler.Resume(std::span(tokens).subspan(prompt_len));
    const size_t before = tokens.size();
    for (uint32_t i = 0; i < n; ++i) {
      const OutputResult result =
          testing::ToyHead(testing::ToyLogitsAfter(tokens, limits_), kMaxCandidates, kNoToken);
      tokens.push_back(sampler.Sample(result, {})->token);
    }
    return {tokens.begin() + before, tokens.end()};
  }
  Tokens Greedy(uint64_t id, uint32_t n) {
    return Continuation(texts_[id], prompt_lens_[id], greedy_, n);
  }

  StepLimits limits_;
  testing::FakeExecutor executor_;
  SamplingParams greedy_;
  DraftVocabularies vocabularies_;
  DraftBatch batch_;
  std::map<uint64_t, Tokens> texts_;  // prompt and what was decided
  std::map<uint64_t, uint32_t> prompt_lens_;
  uint64_t step_id_ = 0;
};

const Tokens kLongPrompt = {1, 270, 265, 280, 275, 266};

TEST_F(DraftBatchTest, AChainIsTheModelsOwnContinuation) {
  Begin(7, kLongPrompt, greedy_);
  Ask(7, 4);
  EXPECT_THAT(StepAll(), ElementsAre(6, 1, 1, 1));
  const auto chains = Chains();
  ASSERT_THAT(chains, SizeIs(1));
  EXPECT_EQ(chains.at(7).first_position, 6u);
  EXPECT_EQ(chains.at(7).tokens, Greedy(7, 4));
  EXPECT_THAT(chains.at(7).probabilities, SizeIs(4));
  for (const float p : chains.at(7).probabilities) {
    EXPECT_GT(p, 0.0f);
    EXPECT_LE(p, 1.0f);
  }
}

TEST_F(DraftBatchTest, DrawsAreThoseOfTheTargetsSamplerAtTheSamePosition) {
  SamplingParams drawn;
  drawn.temperature = 1.7f;
  drawn.top_k = 40;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    drawn.seed = seed;
    Begin(seed, kLongPrompt, drawn);
    Decide(seed, Continuation(kLongPrompt, 6, drawn, static_cast<uint32_t>(seed % 5)));
    Ask(seed, 5);
    StepAll();
    const auto chains = Chains();
    EXPECT_EQ(chains.at(seed).tokens, Continuation(texts_[seed], 6, drawn, 5)) << seed;
    batch_.End(seed);
  }
}

TEST_F(DraftBatchTest, AcceptedRowsStayAndRejectedOnesAreOverwritten) {
  Begin(1, kLongPrompt, greedy_);
  Ask(1, 4);
  StepAll();
  Tokens guesses = Chains().at(1).tokens;
  // Two accepted, another token in place of the third: its row alone is new.
  const uint32_t other = guesses[2] == 270 ? 271 : 270;
  Decide(1, {guesses[0], guesses[1], other});
  Ask(1, 4);
  EXPECT_THAT(StepAll(), ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(Chains().at(1).tokens, Greedy(1, 4));
  // All accepted, and the token after them: the last guess has no row yet.
  guesses = Greedy(1, 5);
  Decide(1, guesses);
  Ask(1, 4);
  EXPECT_THAT(StepAll(), ElementsAre(2, 1, 1, 1));
  EXPECT_EQ(Chains().at(1).tokens, Greedy(1, 4));
}

TEST_F(DraftBatchTest, SequencesOfAnyHistoryAreGuessedRight) {
  std::mt19937 random(4);
  std::map<uint64_t, SamplingParams> sampling;
  uint64_t next = 1;
  for (int round = 0; round < 400; ++round) {
    if (texts_.size() < 6 && random() % 3 == 0) {
      SamplingParams params;
      params.temperature = random() % 2 == 0 ? 0.0f : 1.2f;
      params.seed = random();
      sampling[next] = params;
      Tokens prompt(1 + random() % 90);
      for (uint32_t& token : prompt) token = kFirstLetter + random() % 26;
      Begin(next, prompt, sampling[next]);
      ++next;
    }
    for (const auto& [id, text] : texts_) {
      if (random() % 2 == 0) Ask(id, 1 + random() % kMaxGuesses);
    }
    if (random() % 4 == 0) Step();  // the target may be faster than the chains
    if (random() % 2 == 0) StepAll();
    const auto chains = Chains();
    for (const auto& [id, chain] : chains) {
      // Tokens that were decided meanwhile, whatever the model would say, then its own.
      const size_t end = chain.first_position + chain.tokens.size();
      Tokens expected(texts_[id].begin(), texts_[id].begin() + std::min(end, texts_[id].size()));
      const Tokens guessed = Continuation(expected, prompt_lens_[id], sampling[id],
                                          static_cast<uint32_t>(end - expected.size()));
      expected.insert(expected.end(), guessed.begin(), guessed.end());
      expected.erase(expected.begin(), expected.begin() + chain.first_position);
      EXPECT_EQ(chain.tokens, expected) << "round " << round << " sequence " << id;
    }
    for (auto it = texts_.begin(); it != texts_.end();) {
      const uint64_t id = it->first;
      if (it->second.size() > 200 || random() % 40 == 0) {
        batch_.End(id);
        it = texts_.erase(it);
        continue;
      }
      ++it;
      if (random() % 3 == 0) continue;
      const uint32_t n = 1 + random() % 6;
      Tokens decided = Continuation(texts_[id], prompt_lens_[id], sampling[id], n);
      if (random() % 2 == 0) decided.back() = kFirstLetter + random() % 26;
      Decide(id, decided);
    }
  }
  EXPECT_GT(step_id_, 500u);
}

TEST_F(DraftBatchTest, PromptsAreComputedWhileNothingIsAsked) {
  Tokens prompt(150);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = kFirstLetter + i * 7 % 26;
  Begin(1, prompt, greedy_);
  EXPECT_TRUE(batch_.has_work());
  EXPECT_EQ(Step(), 64u);
  EXPECT_EQ(Step(), 64u);
  EXPECT_EQ(Step(), 21u) << "the last token's row gives the first guess";
  EXPECT_FALSE(batch_.has_work());
  EXPECT_EQ(Step(), 0u);
  Ask(1, 2);
  EXPECT_THAT(StepAll(), ElementsAre(1, 1));
  EXPECT_EQ(Chains().at(1).tokens, Greedy(1, 2));
}

TEST_F(DraftBatchTest, ChainsOfSeveralSequencesShareSteps) {
  for (uint64_t id = 1; id <= 5; ++id) {
    Begin(id, {1, kFirstLetter + static_cast<uint32_t>(id)}, greedy_);
    Ask(id, 3);
  }
  EXPECT_EQ(batch_.num_asked(), 5u);
  EXPECT_THAT(StepAll(), ElementsAre(10, 5, 5));
  const auto chains = Chains();
  for (uint64_t id = 1; id <= 5; ++id) EXPECT_EQ(chains.at(id).tokens, Greedy(id, 3));
}

TEST_F(DraftBatchTest, AChainGoesOnWhileWhatIsDecidedIsWhatItGuesses) {
  Begin(1, kLongPrompt, greedy_);
  const Tokens expected = Greedy(1, 6);
  Ask(1, 6);
  Step();
  Step();
  Decide(1, {expected[0], expected[1], expected[2]});  // one more than it has guessed
  StepAll();
  EXPECT_EQ(Chains().at(1).tokens, expected);
}

TEST_F(DraftBatchTest, AnotherTokenEndsAChainAtOnce) {
  Begin(1, kLongPrompt, greedy_);
  Ask(1, 6);
  Step();
  Decide(1, {Greedy(1, 1)[0] == 270 ? 271u : 270u});
  EXPECT_EQ(batch_.num_asked(), 0u);
  const auto chains = Chains();
  EXPECT_EQ(chains.at(1).first_position, 6u);
  EXPECT_THAT(chains.at(1).tokens, IsEmpty());
  Ask(1, 3);
  StepAll();
  EXPECT_EQ(Chains().at(1).tokens, Greedy(1, 3));
}

TEST_F(DraftBatchTest, AnotherQuestionKeepsTheGuessesThatStillLieAhead) {
  Begin(1, kLongPrompt, greedy_);
  const Tokens expected = Greedy(1, 8);
  Ask(1, 4);
  Step();
  Step();
  Step();
  Decide(1, {expected[0]});
  Ask(1, 4);
  EXPECT_THAT(StepAll(), SizeIs(2)) << "two of its four were there";
  EXPECT_EQ(Chains().at(1).tokens, Tokens(expected.begin() + 1, expected.begin() + 5));
}

TEST_F(DraftBatchTest, QuestionsThatCannotBeAnsweredHaveEmptyChains) {
  batch_.Ask({.sequence = 5, .num_decided = 3, .max_guesses = 4});
  Begin(6, kLongPrompt, greedy_);
  batch_.Ask({.sequence = 6, .num_decided = 9, .max_guesses = 4});
  const auto chains = Chains();
  EXPECT_EQ(chains.at(5).first_position, 3u);
  EXPECT_THAT(chains.at(5).tokens, IsEmpty());
  EXPECT_THAT(chains.at(6).tokens, IsEmpty());
  EXPECT_EQ(batch_.num_asked(), 0u);
}

TEST_F(DraftBatchTest, ASequenceThatEndsWhileItsRowsAreComputedIsDropped) {
  Begin(1, kLongPrompt, greedy_);
  Ask(1, 4);
  StepBatch step;
  ASSERT_TRUE(batch_.Build(++step_id_, step));
  batch_.End(1);
  batch_.TakeResults([](uint32_t) -> const OutputResult& {
    static const OutputResult none;
    return none;
  });
  EXPECT_THAT(Chains(), IsEmpty());
  EXPECT_FALSE(batch_.has_work());
}

TEST_F(DraftBatchTest, NothingFollowsAStopTokenOrOneThatTheTargetLacks) {
  Begin(1, kLongPrompt, greedy_);
  const Tokens expected = Greedy(1, 4);
  vocabularies_.stop_tokens = {static_cast<int>(expected[1])};
  batch_.Reset(limits_, vocabularies_);
  Ask(1, 4);
  StepAll();
  EXPECT_EQ(Chains().at(1).tokens, Tokens(expected.begin(), expected.begin() + 2));
  vocabularies_.stop_tokens.clear();
  vocabularies_.target_size = expected[2];
  batch_.Reset(limits_, vocabularies_);
  Ask(1, 4);
  StepAll();
  const Tokens shorter = Chains().at(1).tokens;
  for (const uint32_t token : shorter) EXPECT_LT(token, expected[2]);
  EXPECT_LE(shorter.size(), 2u);
}

TEST_F(DraftBatchTest, TokensThatTheDraftLacksAreShownAsTheUnknownOne) {
  vocabularies_.draft_size = 290;
  batch_.Reset(limits_, vocabularies_);
  Begin(1, {1, 292, 270, 291}, greedy_);
  Decide(1, {270, 293});
  texts_[1] = {1, 1, 270, 1, 270, 1};
  Ask(1, 2);
  StepAll();
  EXPECT_EQ(Chains().at(1).tokens, Greedy(1, 2));
}

TEST_F(DraftBatchTest, AChainEndsWithTheContext) {
  Tokens prompt(limits_.context_len - 2, 270);
  Begin(1, prompt, greedy_);
  Ask(1, 8);
  StepAll();
  EXPECT_EQ(Chains().at(1).tokens, Greedy(1, 3)) << "the last has no row any more";
  Decide(1, Greedy(1, 5));
  Ask(1, 8);
  EXPECT_EQ(Step(), 0u);
  EXPECT_THAT(Chains().at(1).tokens, IsEmpty());
}

TEST_F(DraftBatchTest, ALostCacheIsComputedAgain) {
  Begin(1, kLongPrompt, greedy_);
  Ask(1, 4);
  Step();
  batch_.LoseCache();
  EXPECT_THAT(StepAll(), ElementsAre(7, 1, 1));
  EXPECT_EQ(Chains().at(1).tokens, Greedy(1, 4));
  Ask(1, 4);
  batch_.EndChains();
  EXPECT_THAT(Chains().at(1).tokens, IsEmpty());
}

StepLimits Tight() {
  StepLimits limits = testing::ToyLimits();
  limits.num_blocks[kGlobalGroup] = 12;  // of 8 positions
  limits.num_blocks[kWindowGroup] = 12;
  limits.max_rows = 16;
  return limits;
}

class TightDraftBatchTest : public DraftBatchTest {
 protected:
  TightDraftBatchTest() : DraftBatchTest(Tight()) {}
};

TEST_F(TightDraftBatchTest, TheCacheGoesToTheSequenceThatIsAskedFor) {
  for (uint64_t id = 1; id <= 4; ++id) {
    Tokens prompt(40);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = kFirstLetter + (i * 7 + id) % 26;
    Begin(id, prompt, greedy_);
  }
  for (int i = 0; i < 40 && Step() > 0; ++i) {
  }
  EXPECT_EQ(Step(), 0u) << "sequences must not take the cache from one another for ever";
  for (int round = 0; round < 12; ++round) {
    const uint64_t id = 1 + round * 5 % 4;
    Ask(id, 3);
    StepAll();
    EXPECT_EQ(Chains().at(id).tokens, Greedy(id, 3)) << round;
    Decide(id, Greedy(id, 2));
  }
}

TEST_F(TightDraftBatchTest, ASequenceThatHasNoRoomAtAllIsNotGuessed) {
  Begin(1, Tokens(limits_.context_len - 8, 270), greedy_);
  Ask(1, 3);
  for (int i = 0; i < 40 && batch_.num_asked() > 0; ++i) Step();
  EXPECT_EQ(batch_.num_asked(), 0u);
  EXPECT_THAT(Chains().at(1).tokens, IsEmpty());
}

}  // namespace
}  // namespace tandem::gateway
