#include "services/common/step/kv_copy.h"

#include "absl/strings/str_format.h"
#include "services/common/tensor/kv_format.h"

namespace tandem {

KvCopyLayout::KvCopyLayout(const ModelConfig& config, const StepLimits& limits)
    : half_bytes_(config.num_kv_heads *
                  KvPageBytes(limits.kv_dtype, limits.block_tokens, config.head_dim)),
      area_bytes_(limits.kv_area_bytes) {
  for (uint32_t layer_idx = 0; layer_idx < config.num_layers; ++layer_idx) {
    layers_[config.is_global(layer_idx) ? kGlobalGroup : kWindowGroup].push_back(layer_idx);
  }
  for (int group = 0; group < kNumKvGroups; ++group) num_blocks_[group] = limits.num_blocks[group];
}

uint64_t KvCopyLayout::Bytes(const KvCopy& copy) const {
  return copy.blocks[kGlobalGroup].size() * BlockBytes(kGlobalGroup) +
         copy.blocks[kWindowGroup].size() * BlockBytes(kWindowGroup);
}

absl::Status KvCopyLayout::Check(const KvCopy& copy) const {
  for (int group = 0; group < kNumKvGroups; ++group) {
    for (const uint32_t block : copy.blocks[group]) {
      if (block < num_blocks_[group]) continue;
      return absl::InvalidArgumentError(absl::StrFormat("copy of KV block %d, group %d has %d",
                                                        block, group, num_blocks_[group]));
    }
    // Before the product below can overflow.
    if (copy.blocks[group].size() > num_blocks_[group]) {
      return absl::InvalidArgumentError(absl::StrFormat("copy of %d KV blocks, group %d has %d",
                                                        copy.blocks[group].size(), group,
                                                        num_blocks_[group]));
    }
  }
  if (Bytes(copy) <= area_bytes_) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("copy of %d bytes of KV, the area has %d", Bytes(copy), area_bytes_));
}

}  // namespace tandem
