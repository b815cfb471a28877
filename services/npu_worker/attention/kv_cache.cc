#include "services/npu_worker/attention/kv_cache.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {

absl::StatusOr<KvCache> KvCache::Create(NpuKernel& npu, const ModelConfig& config, const KvSpec& kv,
                                        const std::vector<uint32_t>& layers) {
  KvCache cache;
  cache.group_.assign(config.num_layers, 0);
  cache.offset_.assign(config.num_layers, std::nullopt);
  uint64_t bytes[kNumKvGroups] = {};
  const uint64_t block_bytes =
      KvBlockElements(config.num_kv_heads, kv.block_tokens, config.head_dim) * sizeof(uint16_t);
  for (const uint32_t layer : layers) {
    const KvGroup group = config.is_global(layer) ? kGlobalGroup : kWindowGroup;
    if (kv.num_blocks[group] == 0 || kv.block_tokens == 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("layer %d: its KV group has no blocks", layer));
    }
    cache.group_[layer] = group;
    cache.offset_[layer] = bytes[group];
    bytes[group] += kv.num_blocks[group] * block_bytes;
  }
  // Memory is handed out before it is there: an NPU's cache would be locked page by page, and an
  // emulated one's killed for it.
  const uint64_t total = bytes[kGlobalGroup] + bytes[kWindowGroup];
  const uint64_t available = ReadHostMemory().available_bytes;
  if (total > available) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "KV cache of %d + %d blocks needs %d MiB, %d MiB of memory are available",
        kv.num_blocks[kGlobalGroup], kv.num_blocks[kWindowGroup], total >> 20, available >> 20));
  }
  for (int group = 0; group < kNumKvGroups; ++group) {
    if (bytes[group] == 0) continue;
    auto buffer = npu.Allocate(kKvBuffer, bytes[group]);
    if (!buffer.ok()) {
      return absl::ResourceExhaustedError(
          absl::StrFormat("KV cache of %d blocks of %d positions: %s", kv.num_blocks[group],
                          kv.block_tokens, std::string(buffer.status().message())));
    }
    cache.buffers_[group] = *std::move(buffer);
  }
  return cache;
}

uint64_t KvCache::total_bytes() const {
  uint64_t bytes = 0;
  for (const NpuBuffer& buffer : buffers_) bytes += buffer.size();
  return bytes;
}

absl::Status KvCache::Copy(const KvCopy& copy, const KvCopyLayout& layout,
                           std::span<std::byte> area) const {
  const uint64_t bytes = layout.part_bytes();
  absl::Status status;
  layout.ForEachPart(copy, [&](uint32_t layer_idx, uint32_t block, uint64_t area_offset) {
    if (!offset_[layer_idx].has_value() || !status.ok()) return;
    const NpuBuffer& cache = buffer(layer_idx);
    const uint64_t at = offset(layer_idx) + block * bytes;
    if (copy.write) {
      std::memcpy(cache.data() + at, area.data() + area_offset, bytes);
      status = cache.SyncToDevice(at, bytes);
    } else {
      status = cache.SyncFromDevice(at, bytes);
      std::memcpy(area.data() + area_offset, cache.data() + at, bytes);
    }
  });
  return status;
}

}  // namespace tandem::npu
