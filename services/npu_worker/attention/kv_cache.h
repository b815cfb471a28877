// The paged KV cache of the layers whose Attend this worker runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/step/kv_copy.h"
#include "services/common/worker/worker.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// One buffer per KV group; a group's layers lie in it one after another, each
// f16 [num_blocks][k, v][num_kv_heads][block_tokens][head_dim].  Immutable after creation.  The
// device and Copy write the contents.
class KvCache {
 public:
  // `layers`: indices of the layers, each once.  RESOURCE_EXHAUSTED carries the amounts.
  static absl::StatusOr<KvCache> Create(NpuKernel& npu, const ModelConfig& config, const KvSpec& kv,
                                        const std::vector<uint32_t>& layers);

  // REQUIRES the layer was named at creation.
  const NpuBuffer& buffer(uint32_t layer_idx) const { return buffers_[group_[layer_idx]]; }
  uint64_t offset(uint32_t layer_idx) const { return *offset_[layer_idx]; }
  uint64_t total_bytes() const;

  // Copies blocks between this cache and `area`, the exchange region's for them: the bytes lie in
  // both alike.  Errors of NpuBuffer's Sync.  REQUIRES a copy that `layout` has allowed, and that
  // the device runs no command over the cache.
  absl::Status Copy(const KvCopy& copy, const KvCopyLayout& layout,
                    std::span<std::byte> area) const;

 private:
  std::array<NpuBuffer, kNumKvGroups> buffers_;
  std::vector<uint32_t> group_;                  // [num_layers]
  std::vector<std::optional<uint64_t>> offset_;  // [num_layers], bytes; none: not named
};

}  // namespace tandem::npu
