// Constrained answers of the toy model: with an engine, and what they must be without one.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/engine_harness.h"

namespace tandem::gateway::testing {

using constraint::Constraint;
using constraint::ConstraintSource;
using constraint::SourceKind;

inline constexpr char kSchema[] =
    R"({"type":"object","properties":{"name":{"type":"string","maxLength":9},
    "kind":{"enum":["theatre","inn"]},"age":{"type":"integer","minimum":0,"maximum":99}},
    "required":["name","kind","age"],"additionalProperties":false})";
inline constexpr char kPattern[] = "(an|in|the) [a-e]{2,7}( twenty-two)?";

inline std::shared_ptr<Constraint> Compile(SourceKind kind, std::string text,
                                           const constraint::MatcherLimits& limits = {}) {
  std::vector<std::string> bytes;
  for (uint32_t t = 0; t < ToyTokenizer().vocab_size(); ++t) {
    bytes.emplace_back(ToyTokenizer().TokenBytes(t));
  }
  auto trie = constraint::TokenTrie::Create(bytes, {kToyEos, kToyEndOfTurn});
  TANDEM_CHECK(trie.ok());
  ConstraintSource source{.kind = kind, .text = std::move(text)};
  if (kind == SourceKind::kChoices) source.choices = {std::exchange(source.text, {})};
  auto grammar = constraint::CompileSource(source);
  TANDEM_CHECK(grammar.ok());
  return Constraint::Create(*std::move(grammar), *trie, limits);
}

// The answer without an engine: a token at a time, forced ones without a draw.
inline std::vector<uint32_t> ExpectedConstrained(const EngineRequest& request) {
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
    const std::vector<float> logits = ToyLogitsAfter(tokens, ToyLimits());
    const auto decision =
        sampler.Sample(ToyHead(logits, kMaxCandidates, kNoToken, mask), logits, mask);
    TANDEM_CHECK(decision.ok());
    add(decision->token);
  }
  return answer;
}

inline EngineRequest Constrained(uint32_t seed, float temperature,
                                 std::shared_ptr<Constraint> shape) {
  EngineRequest request = GreedyRequest(seed, 5 + seed % 30, 120);
  request.ignore_eos = false;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  request.constraint = std::move(shape);
  return request;
}

inline v1::SchedulerStatus StepsOf(const Engine& engine) {
  v1::GetStatusResponse status;
  engine.FillStatus(status);
  return status.scheduler();
}

// Constrained answers of all kinds beside free ones.
inline std::vector<EngineRequest> MixedRequests() {
  const auto schema = Compile(SourceKind::kJsonSchema, kSchema);
  const auto pattern = Compile(SourceKind::kRegex, kPattern);
  std::vector<EngineRequest> requests;
  for (uint32_t i = 0; i < 24; ++i) {
    if (i % 3 == 2) {
      requests.push_back(GreedyRequest(i, 20, 40));
    } else {
      requests.push_back(Constrained(i, i % 2 == 0 ? 0.0f : 2.0f, i % 3 == 0 ? schema : pattern));
      if (i % 4 == 1) requests.back().sampling.top_k = 0;  // needs every logit
      if (i % 4 == 3) requests.back().sampling.frequency_penalty = 0.5f;
      requests.back().num_alternatives = i % 5;
    }
  }
  return requests;
}

// Every token of theirs is as without an engine.
inline v1::SchedulerStatus ExpectAnswersFit(FakeExecutorOptions fake, EngineOptions options) {
  auto engine = MakeEngine(std::move(fake), std::move(options));
  const std::vector<EngineRequest> requests = MixedRequests();
  std::vector<std::unique_ptr<StreamReader>> readers;
  for (const EngineRequest& request : requests) {
    readers.push_back(std::make_unique<StreamReader>());
    EXPECT_TRUE(engine->Submit(request, readers.back()->stream()).ok());
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

}  // namespace tandem::gateway::testing
