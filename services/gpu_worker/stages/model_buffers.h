// Every buffer of a loaded model, made once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/matrix_launches.h"
#include "services/gpu_worker/kernels/tuning.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/upload.h"

namespace tandem::gpu {

// A lane's buffers between stages; rows as in plan/stage.h's Port.  Buffers that no stage of this
// worker needs are null.  If the worker runs the whole model, steps run one after another, and all
// lanes share the buffers that only the device uses.
struct LaneBuffers {
  vulkan::Buffer step;  // mapped; the step area
  // Where decode.comp attends: mapped, see attention_step.h; its partial results; its counters.
  vulkan::Buffer attention_step, partials, counters;
  vulkan::Buffer residual;         // float32 [max_rows, hidden_dim]
  vulkan::Buffer updated;          // float32 [hidden_dim], a residual of one row on its way
  vulkan::Buffer normed;           // activations [max_rows, hidden_dim] of any format
  vulkan::Buffer qkv;              // float32 [max_rows, qkv_dim]
  vulkan::Buffer q, k, v;          // float16 [max_rows, q_dim or kv_dim]
  vulkan::Buffer attention;        // float16 [max_rows, q_dim]
  vulkan::Buffer projection;       // float32 [max_rows, hidden_dim], few rows as partial sums
  vulkan::Buffer activated;        // activations [max_rows, ffn_dim] of any format
  vulkan::Buffer head_normed;      // activations [head_tile, hidden_dim] of any format
  vulkan::Buffer logits;           // float32 [head_tile, LogitStride(vocab_size)]
  vulkan::Buffer head_slices;      // OutputResult [head_tile, slices], see SlicesOf
  vulkan::Buffer head_sums;        // mapped; float32 [max_outputs, 2]: highest, sum of exponentials
  vulkan::Buffer matrix_sums;      // see MatrixWorkspace; null without matrix units
  vulkan::Buffer matrix_arrivals;  // zero between launches

  MatrixWorkspace matrix_workspace() const {
    return {.sums = matrix_sums.address(),
            .sums_bytes = matrix_sums.bytes(),
            .arrivals = matrix_arrivals.address()};
  }
};

struct KvBuffers {
  vulkan::Buffer k, v;  // see shaders/include/kv_cache.glsl
};

struct ModelBuffers {
  std::vector<LaneBuffers> lanes;
  std::map<uint32_t, KvBuffers> kv;  // by layer, where this worker attends
  vulkan::Buffer rotation_global;    // see MakeRotationTable
  vulkan::Buffer rotation_local;
  vulkan::Buffer guesses;    // uint32 [max_outputs], of the last step with outputs
  uint32_t head_tile = 0;    // outputs whose logits are there at once, a power of two
  uint32_t decode_rows = 0;  // rows that decode.comp takes at once, a power of two
  TileRules rules;
  uint64_t kv_bytes = 0;

  // `stages`: those this worker runs.  RESOURCE_EXHAUSTED names the buffer and its size.
  static absl::StatusOr<std::unique_ptr<ModelBuffers>> Create(const vulkan::Device& device,
                                                              vulkan::Uploader& uploader,
                                                              const Tuning& tuning,
                                                              const ModelLoad& load,
                                                              const std::vector<Stage>& stages);
};

// Group of a layer's KV blocks.
inline KvGroup GroupOf(const ModelConfig& config, uint32_t layer_idx) {
  return config.is_global(layer_idx) ? kGlobalGroup : kWindowGroup;
}

}  // namespace tandem::gpu
