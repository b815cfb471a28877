// A tiny deterministic language model over paged KV, and what it must say.
//
// Every position has a state, a hash of the state before it, of the state at the start of its
// window and of its token.  A picture's rows have one token, which depends on the soft tokens at
// all its positions, computed now or before.  The logits are a function of the state.  A block
// table that is wrong in either group therefore changes every later token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/model/model_config.h"
#include "services/common/model/vocabulary.h"
#include "services/common/step/step_batch.h"

namespace tandem::gateway::testing {

// Ids of the toy vocabulary: unknown, control tokens, 256 bytes, letters, some words.
inline constexpr uint32_t kToyBos = 1;
inline constexpr uint32_t kToyEos = 2;
inline constexpr uint32_t kToyEndOfTurn = 3;
inline constexpr uint32_t kToyFirstByte = 4;
// A row with this token has logits that are not finite.
inline constexpr uint32_t kToyPoison = kToyFirstByte + 255;

Vocabulary ToyVocabulary();
// The same, then the markers around pictures.
Vocabulary SeeingToyVocabulary();
ModelConfig ToyConfig(uint32_t context_len, uint32_t sliding_window);

uint64_t ToyState(uint64_t previous, uint64_t window_start, uint32_t token);
// Of the soft token of one row.
uint64_t ToyPictureRow(std::span<const float> soft_token);
// What stands for the token of every row of a picture: it depends on all of them, by ToyPictureRow.
uint32_t ToyPictureToken(std::span<const uint64_t> rows);
// The same of soft tokens, [rows of a picture, hidden_dim].
uint32_t ToyPictureToken(std::span<const float> soft_tokens, uint32_t hidden_dim);
// [vocab_size] logits of the token after a state.
std::vector<float> ToyLogits(uint64_t state, uint32_t vocab_size);
// States of `tokens`, without any KV cache.
std::vector<uint64_t> ToyStates(std::span<const uint32_t> tokens, const StepLimits& limits);
// Logits after the last of `tokens`, without any KV cache.
std::vector<float> ToyLogitsAfter(std::span<const uint32_t> tokens, const StepLimits& limits);
// Whole numbers below 8, so that sums are exact; not finite after kToyPoison.
std::vector<float> ToyHidden(uint64_t state, uint32_t hidden_dim);
// What the head writes for these logits.  `mask`: empty, or [MaskWords(logits.size())].
OutputResult ToyHead(std::span<const float> logits, uint32_t num_candidates, uint32_t target,
                     std::span<const uint32_t> mask = {});

}  // namespace tandem::gateway::testing
