// Copies of whole KV blocks between a worker's cache and the exchange region's area for them.
//
//   area    global block | global block | ... | window block | ...
//   block   K of a layer | V of it | K of the group's next layer | ...
//   K, V    [num_kv_heads] pages (tensor/kv_format.h)
//
// The layers of all workers have their places in the area.  A worker copies those whose Attend it
// runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "services/common/model/model_config.h"
#include "services/common/step/step_batch.h"

namespace tandem {

// Largest area.
inline constexpr uint64_t kMaxKvAreaBytes = uint64_t{128} << 20;

struct KvCopy {
  bool write = false;                              // from the area to the cache
  std::span<const uint32_t> blocks[kNumKvGroups];  // ids, by KvGroup
};

// Immutable.
class KvCopyLayout {
 public:
  KvCopyLayout() = default;  // no layers
  KvCopyLayout(const ModelConfig& config, const StepLimits& limits);

  // Bytes of a block of a group, all layers together.
  uint64_t BlockBytes(KvGroup group) const { return part_bytes() * layers_[group].size(); }
  // Bytes of a layer's K in a block; its V takes as many.
  uint64_t half_bytes() const { return half_bytes_; }
  // Of K and V of a layer in a block.
  uint64_t part_bytes() const { return 2 * half_bytes_; }
  // Most of K's and V's parts, of half_bytes, in a copy.
  uint64_t max_halves() const { return half_bytes_ == 0 ? 0 : area_bytes_ / half_bytes_; }
  // What a copy takes of the area.
  uint64_t Bytes(const KvCopy& copy) const;
  // INVALID_ARGUMENT: a block that there is not, or more blocks than the area takes.
  absl::Status Check(const KvCopy& copy) const;

  // Calls `part(layer_idx, block, offset)` for each layer of each block; V follows K at `offset` in
  // the area.
  template <typename F>
  void ForEachPart(const KvCopy& copy, F part) const {
    uint64_t offset = 0;
    for (int group = 0; group < kNumKvGroups; ++group) {
      for (const uint32_t block : copy.blocks[group]) {
        for (const uint32_t layer_idx : layers_[group]) {
          part(layer_idx, block, offset);
          offset += part_bytes();
        }
      }
    }
  }

 private:
  std::vector<uint32_t> layers_[kNumKvGroups];
  uint64_t half_bytes_ = 0;
  uint64_t area_bytes_ = 0;
  uint32_t num_blocks_[kNumKvGroups] = {};
};

}  // namespace tandem
