// An engine over the toy model, and what it must answer.
#pragma once

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "services/gateway/engine/engine.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"
#include "services/gateway/engine/testing/stream_reader.h"

namespace tandem::gateway::testing {

inline const Tokenizer& ToyTokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = Tokenizer::Create(ToyVocabulary()).value();
  return *tokenizer;
}

inline std::unique_ptr<Engine> MakeEngine(FakeExecutorOptions fake = {},
                                          EngineOptions options = {.max_sequences = 8,
                                                                   .max_rows = 64,
                                                                   .chunk_rows = 16,
                                                                   .max_waiting = 1000}) {
  auto engine = Engine::Create(std::make_unique<FakeExecutor>(std::move(fake)), ToyTokenizer(),
                               std::move(options));
  TANDEM_CHECK(engine.ok());
  return *std::move(engine);
}

// A greedy request of `prompt_len` random letters.
inline EngineRequest GreedyRequest(uint32_t seed, uint32_t prompt_len, uint32_t max_tokens) {
  std::mt19937 random(seed);
  EngineRequest request;
  request.request_id = "r" + std::to_string(seed);
  request.prompt = {kToyBos};
  while (request.prompt.size() < prompt_len) request.prompt.push_back(261 + random() % 26);
  request.sampling.temperature = 0.0f;
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  return request;
}

// The tokens the toy model gives without an engine: no batching, no paging, no faults.
inline std::vector<uint32_t> ExpectedTokens(const EngineRequest& request,
                                            const StepLimits& limits) {
  std::vector<uint32_t> tokens = request.prompt;
  std::vector<uint32_t> answer;
  Sampler sampler(request.sampling, request.prompt, request.num_alternatives);
  while (answer.size() < request.max_tokens && tokens.size() < limits.context_len) {
    const std::vector<float> logits = ToyLogitsAfter(tokens, limits);
    const auto decision = sampler.Sample(ToyHead(logits, kMaxCandidates, kNoToken), logits);
    TANDEM_CHECK(decision.ok());
    tokens.push_back(decision->token);
    answer.push_back(decision->token);
    const bool stops = decision->token == kToyEos || decision->token == kToyEndOfTurn;
    if (stops && !request.ignore_eos) break;
  }
  return answer;
}

// A request for the embedding of `prompt_len` random letters.
inline EngineRequest EmbeddingRequest(uint32_t seed, uint32_t prompt_len) {
  EngineRequest request = GreedyRequest(seed, prompt_len, 0);
  request.embedding = true;
  return request;
}

// The toy model's, computed at once.
inline std::vector<float> ExpectedEmbedding(const EngineRequest& request,
                                            const StepLimits& limits) {
  std::vector<double> sum(ToyConfig(limits.context_len, limits.sliding_window).hidden_dim);
  for (const uint64_t state : ToyStates(request.prompt, limits)) {
    const std::vector<float> hidden = ToyHidden(state, static_cast<uint32_t>(sum.size()));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += hidden[i];
  }
  double squares = 0;
  for (const double value : sum) squares += value * value;
  std::vector<float> unit;
  for (const double value : sum) unit.push_back(static_cast<float>(value / std::sqrt(squares)));
  return unit;
}

}  // namespace tandem::gateway::testing
