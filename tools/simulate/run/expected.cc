#include "tools/simulate/run/expected.h"

#include <cmath>

#include "services/common/base/check.h"
#include "services/gateway/engine/testing/toy_model.h"
#include "tools/simulate/cluster/simulated_loader.h"
#include "tools/simulate/cluster/toy_layers.h"
#include "tools/simulate/run/constraints.h"

namespace tandem::simulate {

using gateway::testing::kToyEndOfTurn;
using gateway::testing::kToyEos;
using gateway::testing::ToyHead;
using gateway::testing::ToyHidden;
using gateway::testing::ToyLogits;

namespace {

// A token at a time; those that the constraint forces without a draw.
std::vector<uint32_t> ExpectedConstrained(const gateway::EngineRequest& request) {
  const ModelConfig& config = TheModel().weights->config();
  ToyText text(config);
  uint64_t hash = 0;
  for (const uint32_t token : request.prompt) hash = text.Append(token);
  std::vector<uint32_t> answer;
  auto state = request.constraint->Start().value();
  gateway::Sampler sampler(request.sampling, request.prompt, request.num_alternatives);
  std::vector<uint32_t> mask(request.constraint->mask_words());
  const auto add = [&](uint32_t token) {
    TANDEM_CHECK(state.Advance(token).value());
    hash = text.Append(token);
    answer.push_back(token);
  };
  const auto encode = [](std::string_view piece) { return TheTokenizer().Encode(piece).value(); };
  while (!state.Done() && answer.size() < request.max_tokens) {
    const std::vector<uint32_t> forced = state.ForcedTokens(encode).value();
    for (const uint32_t token : forced) {
      if (answer.size() == request.max_tokens) break;
      add(token);
      sampler.Take(token);
    }
    if (state.Done() || answer.size() == request.max_tokens) break;
    TANDEM_CHECK(state.Mask(mask).ok());
    const std::vector<float> logits = ToyLogits(hash, config.vocab_size);
    const auto decision =
        sampler.Sample(ToyHead(logits, kMaxCandidates, kNoToken, mask), logits, mask);
    TANDEM_CHECK(decision.ok());
    add(decision->token);
  }
  return answer;
}

}  // namespace

std::vector<uint32_t> ExpectedTokens(const gateway::EngineRequest& request) {
  if (request.constraint != nullptr) return ExpectedConstrained(request);
  const ModelConfig& config = TheModel().weights->config();
  ToyText text(config);
  uint64_t state = 0;
  for (const uint32_t token : request.prompt) state = text.Append(token);
  std::vector<uint32_t> answer;
  gateway::Sampler sampler(request.sampling, request.prompt, request.num_alternatives);
  while (answer.size() < request.max_tokens &&
         request.prompt.size() + answer.size() < config.context_len) {
    const std::vector<float> logits = ToyLogits(state, config.vocab_size);
    const auto decision = sampler.Sample(ToyHead(logits, kMaxCandidates, kNoToken), logits);
    TANDEM_CHECK(decision.ok());
    answer.push_back(decision->token);
    const bool stops = decision->token == kToyEos || decision->token == kToyEndOfTurn;
    if (stops && !request.ignore_eos) break;
    state = text.Append(decision->token);
  }
  return answer;
}

std::vector<float> ExpectedEmbedding(const gateway::EngineRequest& request) {
  const ModelConfig& config = TheModel().weights->config();
  ToyText text(config);
  std::vector<double> sum(config.hidden_dim);
  for (const uint32_t token : request.prompt) {
    const std::vector<float> hidden = ToyHidden(text.Append(token), config.hidden_dim);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += hidden[i];
  }
  double squares = 0;
  for (const double value : sum) squares += value * value;
  std::vector<float> unit;
  for (const double value : sum) unit.push_back(static_cast<float>(value / std::sqrt(squares)));
  return unit;
}

}  // namespace tandem::simulate
