#include "services/gateway/engine/testing/toy_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "absl/strings/str_format.h"

namespace tandem::gateway::testing {
namespace {

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

Vocabulary ToyVocabulary() {
  Vocabulary vocabulary;
  const auto add = [&](std::string piece, TokenType type) {
    vocabulary.scores.push_back(-static_cast<float>(vocabulary.pieces.size()));
    vocabulary.pieces.push_back(std::move(piece));
    vocabulary.types.push_back(type);
  };
  add("<unk>", TokenType::kUnknown);
  add("<bos>", TokenType::kControl);
  add("<eos>", TokenType::kControl);
  add("<end_of_turn>", TokenType::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    add(absl::StrFormat("<0x%02X>", byte), TokenType::kByte);
  }
  add("<start_of_turn>", TokenType::kControl);
  for (char letter = 'a'; letter <= 'z'; ++letter) add(std::string(1, letter), TokenType::kNormal);
  for (const char* piece : {"\u2581", "\u2581t", "th", "he", "\u00e9", "\u6771", "an", "in"}) {
    add(piece, TokenType::kNormal);
  }
  return vocabulary;
}

Vocabulary SeeingToyVocabulary() {
  Vocabulary vocabulary = ToyVocabulary();
  for (const char* piece : {"<start_of_image>", "<end_of_image>"}) {
    vocabulary.scores.push_back(-static_cast<float>(vocabulary.pieces.size()));
    vocabulary.pieces.emplace_back(piece);
    vocabulary.types.push_back(TokenType::kControl);
  }
  return vocabulary;
}

ModelConfig ToyConfig(uint32_t context_len, uint32_t sliding_window) {
  ModelConfig config;
  config.num_layers = 6;
  config.hidden_dim = 32;
  config.ffn_dim = 64;
  config.num_heads = 2;
  config.num_kv_heads = 1;
  config.head_dim = 16;
  config.vocab_size = static_cast<uint32_t>(ToyVocabulary().pieces.size());
  config.context_len = context_len;
  config.sliding_window = sliding_window;
  config.layer_is_global = EverySixthGlobal(config.num_layers);
  config.attention_scale = 0.25f;
  config.embedding_scale = std::sqrt(32.0f);
  config.bos_token_id = kToyBos;
  config.stop_token_ids = {kToyEos, kToyEndOfTurn};
  return config;
}

uint64_t ToyState(uint64_t previous, uint64_t window_start, uint32_t token) {
  if (token == kToyPoison) return 0;
  return Mix(previous ^ Mix(window_start ^ Mix(token))) | 1;
}

uint64_t ToyPictureRow(std::span<const float> soft_token) {
  uint64_t hash = 0;
  for (const float value : soft_token) hash = Mix(hash ^ std::bit_cast<uint32_t>(value));
  return hash;
}

uint32_t ToyPictureToken(std::span<const uint64_t> rows) {
  uint64_t hash = 0;
  for (const uint64_t row : rows) hash = Mix(hash ^ row);
  return static_cast<uint32_t>(hash >> 32);
}

uint32_t ToyPictureToken(std::span<const float> soft_tokens, uint32_t hidden_dim) {
  std::vector<uint64_t> rows;
  for (size_t at = 0; at < soft_tokens.size(); at += hidden_dim) {
    rows.push_back(ToyPictureRow(soft_tokens.subspan(at, hidden_dim)));
  }
  return ToyPictureToken(rows);
}

std::vector<float> ToyLogits(uint64_t state, uint32_t vocab_size) {
  std::vector<float> logits(vocab_size);
  for (uint32_t token = 0; token < vocab_size; ++token) {
    logits[token] = static_cast<float>(Mix(state ^ (uint64_t{token} << 40)) >> 40) * 0x1p-21f;
  }
  logits[kToyPoison] = -100.0f;  // the model itself never says it
  if (state == 0) std::fill(logits.begin(), logits.end(), std::nanf(""));
  return logits;
}

std::vector<uint64_t> ToyStates(std::span<const uint32_t> tokens, const StepLimits& limits) {
  std::vector<uint64_t> states;
  for (uint32_t p = 0; p < tokens.size(); ++p) {
    const uint32_t window_start = p + 1 > limits.sliding_window ? p + 1 - limits.sliding_window : 0;
    states.push_back(ToyState(p > 0 ? states.back() : 1,
                              window_start < p ? states[window_start] : 2, tokens[p]));
  }
  return states;
}

std::vector<float> ToyLogitsAfter(std::span<const uint32_t> tokens, const StepLimits& limits) {
  return ToyLogits(ToyStates(tokens, limits).back(), limits.vocab_size);
}

std::vector<float> ToyHidden(uint64_t state, uint32_t hidden_dim) {
  std::vector<float> hidden(hidden_dim, state == 0 ? std::nanf("") : 0.0f);
  for (uint32_t i = 0; i < hidden_dim; ++i)
    hidden[i] += static_cast<float>(Mix(state ^ i) >> 60) - 8;
  return hidden;
}

OutputResult ToyHead(std::span<const float> logits, uint32_t num_candidates, uint32_t target,
                     std::span<const uint32_t> mask) {
  OutputResult result;
  double sum = 0.0;
  std::vector<uint64_t> order;  // a higher logit first, of equal ones the lower token
  order.reserve(logits.size());
  for (uint32_t token = 0; token < logits.size(); ++token) {
    if (!std::isfinite(logits[token])) ++result.num_nonfinite;
    if (!mask.empty() && (mask[token / 32] >> (token % 32) & 1) == 0) continue;
    sum += std::exp(double{logits[token]});
    const auto bits = std::bit_cast<uint32_t>(logits[token] + 0.0f);
    const uint32_t rank = bits >> 31 != 0 ? ~bits : bits | 1u << 31;
    order.push_back(uint64_t{rank} << 32 | ~token);
  }
  result.log_sum_exp = static_cast<float>(std::log(sum));
  if (target != kNoToken) result.target_logit = logits[target];
  if (result.num_nonfinite > 0) return result;
  result.num_candidates = std::min<uint32_t>(num_candidates, static_cast<uint32_t>(order.size()));
  const auto end = order.begin() + result.num_candidates;
  std::nth_element(order.begin(), end, order.end(), std::greater<>());
  std::sort(order.begin(), end, std::greater<>());
  for (uint32_t i = 0; i < result.num_candidates; ++i) {
    const uint32_t token = ~static_cast<uint32_t>(order[i]);
    result.candidates[i] = {token, logits[token]};
  }
  return result;
}

}  // namespace tandem::gateway::testing
