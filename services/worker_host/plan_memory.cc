#include "services/worker_host/plan_memory.h"

#include <set>

#include "services/common/tensor/kv_format.h"

namespace tandem {
namespace {

uint64_t ShardsBytes(const PackedTensor& tensor) {
  uint64_t bytes = 0;
  for (const Shard& shard : tensor.shards) bytes += ShardBytes(tensor, shard);
  return bytes;
}

}  // namespace

uint64_t PlanMemoryBytes(const ModelLoad& load, const WorkerDescription& worker) {
  const ModelConfig& config = load.weights->config();
  const bool weights_count = worker.kind == DeviceKind::kGpu && !worker.emulated;
  std::set<const PackedTensor*> tensors;
  uint64_t bytes = 0;
  for (const Segment& segment : load.segments) {
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      const Stage stage = StageAt(s, config.num_layers);
      if (stage.kind == StageKind::kAttend) {
        const KvGroup group = config.is_global(stage.layer_idx) ? kGlobalGroup : kWindowGroup;
        bytes += 2 * uint64_t{load.kv.num_blocks[group]} * config.num_kv_heads *
                 KvPageBytes(load.kv.dtype, load.kv.block_tokens, config.head_dim);
      }
      if (!weights_count) continue;
      if (stage.kind == StageKind::kVision) {
        for (const PackedTensor& tensor : load.weights->vision_tensors()) {
          bytes += ShardsBytes(tensor);
        }
        continue;
      }
      for (const WeightRole role : RolesOfStage(stage.kind)) {
        const PackedTensor* tensor = load.weights->Find(role, stage.layer_idx);
        if (tensor != nullptr && tensors.insert(tensor).second) bytes += ShardsBytes(*tensor);
      }
    }
  }
  return bytes;
}

uint64_t CopiedWeightBytes(const LoadReport& loaded, const WorkerDescription& worker) {
  const bool copies =
      worker.kind == DeviceKind::kNpu && loaded.weight_import == ImportPath::kUpload;
  return copies ? loaded.weight_bytes : 0;
}

}  // namespace tandem
