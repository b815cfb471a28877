// What requests report of the prefix cache, and that no answer depends on it.
#include <gtest/gtest.h>

#include <atomic>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using testing::MakeEngine;
using testing::StreamReader;
using testing::ToyLimits;

// Runs a request to its end; its answer must be the model's.
v1::Usage UsageOf(Engine& engine, const EngineRequest& request) {
  StreamReader reader;
  EXPECT_TRUE(engine.Submit(request, reader.stream()).ok());
  const StreamEnd& end = reader.ReadToEnd();
  EXPECT_TRUE(end.status.ok()) << end.status;
  EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
  return end.usage;
}

// `request`'s prompt and answer, and `num_more` tokens.
EngineRequest NextTurn(const EngineRequest& request, uint32_t num_more) {
  EngineRequest next = request;
  for (const uint32_t token : ExpectedTokens(request, ToyLimits())) next.prompt.push_back(token);
  const EngineRequest more = GreedyRequest(num_more, num_more + 1, 1);
  next.prompt.insert(next.prompt.end(), more.prompt.begin() + 1, more.prompt.end());
  return next;
}

TEST(EnginePrefixTest, EachTurnOfAConversationStartsAfterTheOneBefore) {
  for (const uint32_t wrong_guess_in : {0u, 2u}) {
    FakeExecutorOptions fake;
    fake.wrong_guess_in = wrong_guess_in;
    auto engine = MakeEngine(fake);
    EngineRequest request = GreedyRequest(1, 40, 13);
    EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), 0u);
    for (const uint32_t num_more : {7u, 20u, 33u}) {
      // The last token of the answer was never computed.
      const size_t computed = request.prompt.size() + request.max_tokens - 1;
      request = NextTurn(request, num_more);
      const v1::Usage usage = UsageOf(*engine, request);
      EXPECT_EQ(usage.cached_tokens(), computed / 8 * 8);
      EXPECT_EQ(usage.prompt_tokens(), request.prompt.size());
    }
  }
}

// Whether the first is still computing it, or has ended.
TEST(EnginePrefixTest, OfEqualPromptsAtOnceTheFirstAloneIsComputed) {
  auto engine = MakeEngine();
  const EngineRequest request = GreedyRequest(1, 60, 5);
  StreamReader readers[4];
  for (StreamReader& reader : readers) {
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  }
  for (StreamReader& reader : readers) {
    const StreamEnd& end = reader.ReadToEnd();
    ASSERT_TRUE(end.status.ok()) << end.status;
    EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
    EXPECT_EQ(end.usage.cached_tokens(), &reader == readers ? 0u : 56u);
  }
}

TEST(EnginePrefixTest, RequestsAndEnginesCanDoWithout) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(1, 40, 5);
  UsageOf(*engine, request);
  request.use_prefix_cache = false;
  EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), 0u);
  request.use_prefix_cache = true;
  EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), 32u);
  auto without =
      MakeEngine({}, {.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .prefix_cache = false});
  for (int i = 0; i < 2; ++i) EXPECT_EQ(UsageOf(*without, request).cached_tokens(), 0u);
  v1::GetStatusResponse status;
  without->FillStatus(status);
  EXPECT_EQ(status.scheduler().prefix_tokens_looked_up(), 0u);
  EXPECT_EQ(status.scheduler().kv_blocks_cached(0), 0u);
}

TEST(EnginePrefixTest, APrefixIsFoundUnderTheSameScopeAndSaltAlone) {
  for (const bool shared : {false, true}) {
    SCOPED_TRACE(shared);
    auto engine = MakeEngine(
        {}, {.max_sequences = 8, .max_rows = 64, .chunk_rows = 16, .shared_prefixes = shared});
    EngineRequest request = GreedyRequest(1, 40, 5);
    const auto cached = [&](const std::string& scope, const std::string& salt) {
      request.cache_scope = scope;
      request.cache_salt = salt;
      return UsageOf(*engine, request).cached_tokens();
    };
    EXPECT_EQ(cached("key:a", ""), 0u);
    EXPECT_EQ(cached("key:a", ""), 32u);
    EXPECT_EQ(cached("key:b", ""), shared ? 32u : 0u) << "another key";
    EXPECT_EQ(cached("", ""), shared ? 32u : 0u) << "no key";
    EXPECT_EQ(cached("key:a", "x"), 0u) << "a salt";
    EXPECT_EQ(cached("key:a", "x"), 32u);
    EXPECT_EQ(cached("key:b", "x"), shared ? 32u : 0u) << "another key's same salt";
    EXPECT_EQ(cached("key:a", "y"), 0u) << "another salt";
    EXPECT_EQ(cached("key:a", ""), 32u);
  }
}

// Waiting for a prefix that is being computed would tell of it too.
TEST(EnginePrefixTest, EqualPromptsUnderDifferentSaltsAreComputedSideBySide) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(1, 60, 5);
  StreamReader readers[3];
  for (StreamReader& reader : readers) {
    request.cache_salt += "x";
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  }
  for (StreamReader& reader : readers) {
    const StreamEnd& end = reader.ReadToEnd();
    EXPECT_EQ(reader.tokens(), ExpectedTokens(request, ToyLimits()));
    EXPECT_EQ(end.usage.cached_tokens(), 0u);
  }
}

TEST(EnginePrefixTest, NothingIsFoundAfterALossOrNumbersThatAreNone) {
  std::atomic<bool> lose = false;
  FakeExecutorOptions fake;
  fake.on_step = [&](const StepBatch&) {
    return lose.exchange(false) ? absl::UnavailableError("gone") : absl::OkStatus();
  };
  auto engine = MakeEngine(fake, {.max_sequences = 8,
                                  .max_rows = 64,
                                  .chunk_rows = 16,
                                  .min_recovery_pause = absl::Milliseconds(1)});
  const EngineRequest request = GreedyRequest(1, 40, 5);
  UsageOf(*engine, request);
  lose = true;
  // Found when it started, and then lost and computed whole.
  EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), 32u);
  lose = true;
  EngineRequest other = GreedyRequest(2, 40, 5);
  UsageOf(*engine, other);
  EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), 0u);

  other.prompt.back() = testing::kToyPoison;
  StreamReader poisoned;
  ASSERT_TRUE(engine->Submit(other, poisoned.stream()).ok());
  EXPECT_TRUE(absl::IsDataLoss(poisoned.ReadToEnd().status));
  EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), 0u);
  EXPECT_EQ(UsageOf(*engine, request).cached_tokens(), 32u);
}

TEST(EnginePrefixTest, PromptLogProbabilitiesAreAllThereAndTheSame) {
  auto engine = MakeEngine();
  EngineRequest request = GreedyRequest(1, 40, 5);
  UsageOf(*engine, request);
  request.prompt_logprobs = true;
  StreamReader reader;
  ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.prompt.size(), 39u);
  EXPECT_EQ(reader.end->usage.cached_tokens(), 0u);
}

}  // namespace
}  // namespace tandem::gateway
