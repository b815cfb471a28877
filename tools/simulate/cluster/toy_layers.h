// A tiny deterministic network in stages: what simulated devices compute.
//
// An activation is one 64-bit hash.  Attend folds the cached hashes of every position that its layer
// sees, in order, so a block table, a cache block or a row that is wrong anywhere changes every later
// token.  Logits are the toy model's (gateway/engine/testing/toy_model.h).
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/model/model_config.h"

namespace tandem::simulate {

uint64_t ToyEmbed(uint32_t token);
// Of a layer's Qkv.
struct ToyQkv {
  uint64_t q = 0;
  uint64_t k = 0;
  uint64_t v = 0;
};
ToyQkv ToyProject(uint32_t layer, uint64_t residual);
// What the cache keeps of a position.
uint64_t ToyCached(const ToyQkv& qkv);
// Attention over cached positions, in order: begins with q, and takes one after another.
uint64_t ToyAttend(uint64_t sum, uint64_t cached);
uint64_t ToyOut(uint32_t layer, uint64_t attention);
uint64_t ToyFfn(uint64_t residual, uint64_t projection);
// The first position that position `p` of a layer sees.
inline uint32_t FirstSeen(const ModelConfig& config, uint32_t layer, uint32_t p) {
  return config.layer_is_global[layer] || p + 1 <= config.sliding_window
             ? 0
             : p + 1 - config.sliding_window;
}

// The network over one text, without blocks, steps or workers.
class ToyText {
 public:
  // Borrowed; must outlive this.
  explicit ToyText(const ModelConfig& config) : config_(config), cached_(config.num_layers) {}
  // The hash that the head gets after one more token.
  uint64_t Append(uint32_t token);

 private:
  const ModelConfig& config_;
  std::vector<std::vector<uint64_t>> cached_;  // [layer][position]
};

}  // namespace tandem::simulate
