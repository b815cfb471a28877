#include "services/gpu_worker/stages/stage_shares.h"

#include <algorithm>
#include <numeric>

namespace tandem::gpu {

StageShares::ByKind StageShares::Share(uint64_t total_ns) {
  since_ns_ += total_ns;
  const uint64_t whole = std::accumulate(shares_.begin(), shares_.end(), uint64_t{0});
  ByKind parts = {};
  uint64_t left = total_ns;
  for (size_t kind = 0; kind < parts.size() && whole != 0; ++kind) {
    const double share = static_cast<double>(shares_[kind]) / static_cast<double>(whole);
    parts[kind] = std::min(left, static_cast<uint64_t>(static_cast<double>(total_ns) * share));
    left -= parts[kind];
  }
  // What rounding left goes where most goes.
  parts[static_cast<size_t>(std::max_element(shares_.begin(), shares_.end()) - shares_.begin())] +=
      left;
  return parts;
}

}  // namespace tandem::gpu
