// The layout of an exchange region.
//
// The region has `num_lanes` equal lanes, so that one step's activations can be sent while
// another's are computed.  A lane holds fixed areas, each aligned to kAreaAlignment:
// the step area (step_batch.h), one area per Port, candidates, guesses, logits, pooled sums,
// masks, pixels and soft tokens.  Behind the lanes lies one area for copies of KV blocks (kv_copy.h).
// Offsets never change while a model is loaded, so consumers import the region once and keep
// addresses.
#pragma once

#include <cstdint>

#include "services/common/model/model_config.h"
#include "services/common/plan/stage.h"
#include "services/common/step/step_batch.h"

namespace tandem {

inline constexpr uint64_t kAreaAlignment = 4096;

struct ExchangeArea {
  uint64_t offset = 0;  // from the start of the lane
  uint64_t bytes = 0;
  uint64_t row_bytes = 0;  // stride between rows; 0 for the step area
};

struct ExchangeLayout {
  uint32_t num_lanes = 1;
  uint64_t lane_bytes = 0;
  ExchangeArea step;
  ExchangeArea ports[kNumPorts];  // indexed by bit number of Port; [max_rows] rows each
  ExchangeArea candidates;        // OutputResult [max_outputs]
  ExchangeArea guesses;           // uint32 [max_outputs]: the token guessed for each output
  ExchangeArea logits;            // float32 [max_logit_outputs, vocab_size]
  ExchangeArea pooled;            // float32 [max_sequences, hidden_dim], by index into `pooled`
  ExchangeArea masks;  // uint32 [max_sequences, MaskWords(vocab_size)], by OutputEntry::mask
  // Of a vision plan: float32 [max_pictures, 3, image_size, image_size], as picture/prepare.h
  // makes them.
  ExchangeArea pixels;
  // float32, rows of hidden_dim.  Of a vision plan: [max_pictures, picture_rows], its results.  Of a
  // decoder whose steps have pictures: [max_rows], read by Embed.
  ExchangeArea soft_tokens;
  ExchangeArea kv;  // of no lane: its offset is from the start of the region

  uint64_t total_bytes() const { return num_lanes * lane_bytes + kv.bytes; }
  const ExchangeArea& port(Port p) const;
};

// The layout depends on these alone: both sides compute it, and nothing is sent.
// REQUIRES config.vision if the limits have pictures.
ExchangeLayout MakeExchangeLayout(const ModelConfig& config, const StepLimits& limits,
                                  uint32_t num_lanes);

}  // namespace tandem
