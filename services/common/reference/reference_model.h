// The whole model over one sequence, in float32: tokens in, logits out, every activation in sight.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "services/common/reference/stages.h"

namespace tandem::reference {

struct ReferenceOptions {
  // Round q, k, v and the attention output to float16, as the exchange region and the KV cache do.
  bool half_precision_exchange = false;
  int num_threads = 1;
};

// Rows of a picture: their input is given instead of looked up, and they see each other in both
// directions, whatever a layer's window.  Text stays causal.
struct PictureRows {
  size_t first = 0;  // position of the first row
  std::span<const float>
      embedding;  // [num_rows, hidden_dim], as the first layer takes it. Borrowed.
};

// Immutable after construction, so thread-safe.
class ReferenceModel {
 public:
  explicit ReferenceModel(const WeightSet& weights, ReferenceOptions options = {});

  const ModelConfig& config() const { return parameters_.config(); }
  const Parameters& parameters() const { return parameters_; }

  // Called after each stage with everything the rows then carry, [num_tokens, ...].
  using Observer = std::function<void(Stage, const Activations&)>;

  // Logits after every token, [num_tokens, vocab_size].  Tokens are at positions 0, 1, ...
  std::vector<float> Logits(std::span<const uint32_t> tokens, const Observer& observer = {}) const {
    return Logits(tokens, {}, observer);
  }
  // The same with pictures, whose tokens are not looked at.  REQUIRES they lie within the tokens and
  // do not overlap.
  std::vector<float> Logits(std::span<const uint32_t> tokens, std::span<const PictureRows> pictures,
                            const Observer& observer = {}) const;

  // Attend over rows that are one sequence's positions 0, 1, ...; fills rows.attention.
  void AttendSequence(uint32_t layer_idx, Activations& rows,
                      std::span<const PictureRows> pictures = {}) const;

 private:
  Parameters parameters_;
  ReferenceOptions options_;
};

}  // namespace tandem::reference
