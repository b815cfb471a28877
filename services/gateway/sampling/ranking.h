// A row's tokens by their logits, sorted on demand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::gateway {

struct RankedToken {
  float logit = 0.0f;
  uint32_t token = 0;
};

// Most probable first; ties by lower token id.  A sampler keeps one and assigns it again for each
// draw: storage is reused.  Single-thread.
class Ranking {
 public:
  // Tokens 0, 1, ... of a whole row.  `logits` is borrowed until the next Assign; not NaN.
  void AssignAll(std::span<const float> logits);
  // A few tokens, in any order.  Copied; not NaN.
  void Assign(std::span<const RankedToken> tokens);

  size_t size() const { return size_; }
  // The row of AssignAll; empty after Assign.
  std::span<const float> row() const { return logits_; }
  // REQUIRES rank < size().  Amortised: the first few hundred ranks of a row cost one pass over it.
  const RankedToken& At(size_t rank) {
    if (rank >= num_sorted_) Sort(rank + 1);
    return tokens_[rank];
  }

 private:
  // Makes the first `count` ranks, or more, available.
  void Sort(size_t count);
  void SelectHead();

  size_t size_ = 0;
  std::span<const float> logits_;    // the row while tokens_ holds only its head
  std::vector<RankedToken> tokens_;  // the first num_sorted_ in order
  size_t num_sorted_ = 0;
};

}  // namespace tandem::gateway
