// Answers that follow a constraint, against the toy model without an engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway {
namespace {

using constraint::Constraint;
using constraint::ConstraintSource;
using constraint::SourceKind;
using testing::ExpectedTokens;
using testing::FakeExecutorOptions;
using testing::GreedyRequest;
using ::testing::HasSubstr;
using testing::MakeEngine;
using testing::StreamReader;
using testing::ToyLimits;
using testing::ToyTokenizer;

constexpr char kSchema[] = R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},
    "kind":{"enum":["theatre","inn"]},"age":{"type":"integer","minimum":0,"maximum":99}},
    "required":["name","kind","age"],"additionalProperties":false})";
constexpr char kPattern[] = "(an|in|the) [a-e]{2,7}( twenty-two)?";

std::shared_ptr<Constraint> Compile(SourceKind kind, std::string text,
                                    const constraint::MatcherLimits& limits = {}) {
  std::vector<std::string> bytes;
  for (uint32_t t = 0; t < ToyTokenizer().vocab_size(); ++t) {
    bytes.emplace_back(ToyTokenizer().TokenBytes(t));
  }
  auto trie = constraint::TokenTrie::Create(bytes, {testing::kToyEos, testing::kToyEndOfTurn});
  TANDEM_CHECK(trie.ok());
  ConstraintSource source{.kind = kind, .text = std::move(text)};
  if (kind == SourceKind::kChoices) source.choices = {std::exchange(source.text, {})};
  auto grammar = constraint::CompileSource(source);
  TANDEM_CHECK(grammar.ok());
  return Constraint::Create(*std::move(grammar), *trie, limits);
}

// The answer without an engine: a token at a time, forced ones without a draw.
std::vector<uint32_t> ExpectedConstrained(const EngineRequest& request) {
  std::vector<uint32_t> tokens = request.prompt, answer;
  auto state = request.constraint->Start().value();
  Sampler sampler(request.sampling, request.prompt, request.num_alternatives);
  std::vector<uint32_t> mask(request.constraint->mask_words());
  const auto add = [&](uint32_t token) {
    TANDEM_CHECK(state.Advance(token).value());
    tokens.push_back(token);
    answer.push_back(token);
  };
  while (!state.Done() && answer.size() < request.max_tokens) {
    const auto encode = [](std::string_view text) { return ToyTokenizer().Encode(text).value(); };
    const std::vector<uint32_t> forced = state.ForcedTokens(encode).value();
    for (const uint32_t token : forced) {
      if (answer.size() == request.max_tokens) break;
      add(token);
      sampler.Take(token);
    }
    if (state.Done() || answer.size() == request.max_tokens) break;
    TANDEM_CHECK(state.Mask(mask).ok());
    const std::vector<float> logits = testing::ToyLogitsAfter(tokens, ToyLimits());
    const auto decision =
        sampler.Sample(testing::ToyHead(logits, kMaxCandidates, kNoToken, mask), logits, mask);
    TANDEM_CHECK(decision.ok());
    add(decision->token);
  }
  return answer;
}

EngineRequest Constrained(uint32_t seed, float temperature, std::shared_ptr<Constraint> shape) {
  EngineRequest request = GreedyRequest(seed, 5 + seed % 30, 120);
  request.ignore_eos = false;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  request.constraint = std::move(shape);
  return request;
}

v1::SchedulerStatus StepsOf(const Engine& engine) {
  v1::GetStatusResponse status;
  engine.FillStatus(status);
  return status.scheduler();
}

// Constrained answers of all kinds beside free ones: every token as without an engine.
v1::SchedulerStatus ExpectAnswersFit(FakeExecutorOptions fake, EngineOptions options) {
  auto engine = MakeEngine(std::move(fake), std::move(options));
  const auto schema = Compile(SourceKind::kJsonSchema, kSchema);
  const auto pattern = Compile(SourceKind::kRegex, kPattern);
  std::vector<EngineRequest> requests;
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (uint32_t i = 0; i < 24; ++i) {
    if (i % 3 == 2) {
      requests.push_back(GreedyRequest(i, 20, 40));
    } else {
      requests.push_back(Constrained(i, i % 2 == 0 ? 0.0f : 2.0f, i % 3 == 0 ? schema : pattern));
      if (i % 4 == 1) requests.back().sampling.top_k = 0;  // needs every logit
      if (i % 4 == 3) requests.back().sampling.frequency_penalty = 0.5f;
      requests.back().num_alternatives = i % 5;
    }
    readers.push_back(std::make_unique<StreamReader>());
    EXPECT_TRUE(engine->Submit(requests[i], readers[i]->stream()).ok());
  }
  for (uint32_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const StreamEnd& end = readers[i]->ReadToEnd();
    EXPECT_TRUE(end.status.ok()) << end.status;
    const std::string& text = readers[i]->text;
    if (i % 3 == 2) {
      EXPECT_EQ(readers[i]->tokens(), ExpectedTokens(requests[i], ToyLimits()));
      continue;
    }
    EXPECT_EQ(readers[i]->tokens(), ExpectedConstrained(requests[i])) << text;
    EXPECT_EQ(end.usage.completion_tokens(), readers[i]->tokens().size());
    for (const Decision& decision : readers[i]->decisions) {
      EXPECT_LE(decision.logprob, 1e-4f);
      EXPECT_LE(decision.alternatives.size(), requests[i].num_alternatives);
      for (const Alternative& other : decision.alternatives) EXPECT_LE(other.logprob, 1e-4f);
    }
    if (end.reason != v1::FINISH_REASON_STOP) continue;
    if (i % 3 == 1) {
      EXPECT_TRUE(std::regex_match(text, std::regex(kPattern))) << text;
    } else {
      EXPECT_EQ(text.front(), '{') << text;
      EXPECT_EQ(text.back(), '}') << text;
    }
  }
  return StepsOf(*engine);
}

TEST(EngineConstraintTest, EveryAnswerIsTheOneWithoutAnEngine) { ExpectAnswersFit({}, {}); }

TEST(EngineConstraintTest, AnswersAreTheSameWithMasksFromOtherThreads) {
  EngineOptions options;
  options.slow_mask = -absl::Seconds(1);
  ExpectAnswersFit({}, options);
}

TEST(EngineConstraintTest, AnswersAreTheSameThroughLostWorkers) {
  for (const absl::Duration slow_mask : {absl::InfiniteDuration(), -absl::Seconds(1)}) {
    FakeExecutorOptions fake;
    fake.on_step = [](const StepBatch& step) {
      return step.header.step_id % 9 == 5 ? absl::UnavailableError("gpu0 is gone")
                                          : absl::OkStatus();
    };
    EngineOptions options;
    options.min_recovery_pause = absl::Milliseconds(1);
    options.slow_mask = slow_mask;
    ExpectAnswersFit(fake, options);
  }
}

TEST(EngineConstraintTest, AnswersAreTheSameWhenSequencesArePreempted) {
  for (const absl::Duration slow_mask : {absl::InfiniteDuration(), -absl::Seconds(1)}) {
    FakeExecutorOptions fake;
    fake.limits.num_blocks[kGlobalGroup] = 34;
    fake.limits.num_blocks[kWindowGroup] = 34;
    EngineOptions options;
    options.slow_mask = slow_mask;
    EXPECT_GT(ExpectAnswersFit(fake, options).preemptions(), 0u);
  }
}

TEST(EngineConstraintTest, OtherSequencesStillQueueTheirSteps) {
  auto engine = MakeEngine();
  StreamReader free, bound;
  const EngineRequest neighbour = GreedyRequest(1, 10, 200);
  ASSERT_TRUE(engine->Submit(neighbour, free.stream()).ok());
  ASSERT_TRUE(
      engine
          ->Submit(Constrained(2, 0.0f, Compile(SourceKind::kJsonSchema, kSchema)), bound.stream())
          .ok());
  EXPECT_TRUE(bound.ReadToEnd().status.ok());
  EXPECT_TRUE(free.ReadToEnd().status.ok());
  EXPECT_EQ(free.tokens(), ExpectedTokens(neighbour, ToyLimits()));
  EXPECT_GE(StepsOf(*engine).steps_queued(), 150u);
}

// Text that must follow is not computed step by step.
TEST(EngineConstraintTest, ForcedTokensTakeNoStepsOfTheirOwn) {
  auto engine = MakeEngine();
  StreamReader reader;
  ASSERT_TRUE(
      engine
          ->Submit(Constrained(3, 1.0f, Compile(SourceKind::kRegex, "(a|b)zzzzyyyyxxxx(c|d)wwww")),
                   reader.stream())
          .ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.end->reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(reader.text.size(), 18u) << reader.text;
  EXPECT_EQ(reader.tokens().size(), 18u);
  EXPECT_EQ(StepsOf(*engine).steps(), 2u);
}

TEST(EngineConstraintTest, AnAnswerWithoutAChoiceTakesThePromptAlone) {
  auto engine = MakeEngine();
  StreamReader reader;
  ASSERT_TRUE(
      engine->Submit(Constrained(3, 1.0f, Compile(SourceKind::kChoices, "zebra")), reader.stream())
          .ok());
  ASSERT_TRUE(reader.ReadToEnd().status.ok());
  EXPECT_EQ(reader.text, "zebra");
  EXPECT_EQ(reader.end->reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(StepsOf(*engine).steps(), 1u);
  EXPECT_EQ(StepsOf(*engine).completion_tokens(), reader.tokens().size());
}

TEST(EngineConstraintTest, LimitsAndStopTextsCutForcedText) {
  auto engine = MakeEngine();
  const auto pattern = Compile(SourceKind::kRegex, "(a|b)zzzzyyyyxxxx");
  for (const uint32_t max_tokens : {0u, 1u, 4u, 13u}) {
    SCOPED_TRACE(max_tokens);
    EngineRequest request = Constrained(4, 0.0f, pattern);
    request.max_tokens = max_tokens;
    StreamReader reader;
    ASSERT_TRUE(engine->Submit(request, reader.stream()).ok());
    ASSERT_TRUE(reader.ReadToEnd().status.ok()) << reader.end->status;
    EXPECT_EQ(reader.tokens().size(), max_tokens);
    EXPECT_EQ(reader.end->reason, v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(reader.text.size(), max_tokens);
  }
  EngineRequest request = Constrained(4, 0.0f, Compile(SourceKind::kChoices, "zzzzyyyyxxxx"));
  request.max_tokens = 5;
  StreamReader forced;
  ASSERT_TRUE(engine->Submit(request, forced.stream()).ok());
  EXPECT_EQ(forced.ReadToEnd().reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(forced.text, "zzzzy");
  request = Constrained(4, 0.0f, pattern);
  request.stops = {"yy"};
  StreamReader stopped;
  ASSERT_TRUE(engine->Submit(request, stopped.stream()).ok());
  EXPECT_EQ(stopped.ReadToEnd().reason, v1::FINISH_REASON_STOP);
  EXPECT_THAT(stopped.text, ::testing::EndsWith("zzzz"));
}

TEST(EngineConstraintTest, AGrammarBeyondItsBoundsEndsItsOwnAnswerAlone) {
  auto engine = MakeEngine();
  StreamReader bad, good;
  const EngineRequest neighbour = GreedyRequest(1, 10, 60);
  ASSERT_TRUE(engine->Submit(neighbour, good.stream()).ok());
  ASSERT_TRUE(engine
                  ->Submit(Constrained(2, 0.0f,
                                       Compile(SourceKind::kRegex, kPattern,
                                               {.cache_bytes = 0, .memory_bytes = 1})),
                           bad.stream())
                  .ok());
  EXPECT_EQ(bad.ReadToEnd().status.code(), absl::StatusCode::kInvalidArgument) << bad.text;
  ASSERT_TRUE(good.ReadToEnd().status.ok());
  EXPECT_EQ(good.tokens(), ExpectedTokens(neighbour, ToyLimits()));
}

}  // namespace
}  // namespace tandem::gateway
