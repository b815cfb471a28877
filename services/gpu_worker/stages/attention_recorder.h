// Attention of a layer as the device runs it: from the fused projection to what Out reads.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/stages/port_places.h"
#include "services/gpu_worker/stages/stage_recorder.h"

namespace tandem::gpu {

// Records for one lane and row bucket.
//
// Where a segment holds Qkv and Attend, q, k and v need not lie anywhere in between: without long
// sequences (attention_step.h) one kernel does it all; with them, or where attention.comp is the
// device's kernel, k and v are stored in the cache as they leave the projection.
class AttentionRecorder {
 public:
  // All borrowed; must outlive this.  `long_sequences`: the step may have some.
  AttentionRecorder(const RecordingContext& context, const Segment& segment,
                    const PortPlaces& places, const LaneBuffers& buffers, uint32_t bucket,
                    bool long_sequences, PhaseRecorder& phases);

  // What is left of Qkv after its product.
  absl::Status Qkv(uint32_t layer_idx);
  // Writes `format`: f16, or int8 where CanWriteBlocks.
  absl::Status Attend(uint32_t layer_idx, ActivationFormat format);
  bool CanWriteBlocks() const { return tuning_.decode.enabled && config_.head_dim % 32 == 0; }

 private:
  absl::Status Run(const Launch& launch) { return phases_.Run(launch); }
  absl::Status Append(uint32_t layer_idx, uint32_t ordinal);
  absl::Status Tiles(uint32_t layer_idx, uint32_t ordinal, ActivationFormat format);
  absl::Status Decode(uint32_t layer_idx, uint32_t ordinal, bool fused, ActivationFormat format);
  bool IsFused() const { return tuning_.decode.enabled && !long_sequences_; }
  uint64_t NormWeight(WeightRole role, uint32_t layer_idx) const;
  const vulkan::Buffer& Rotation(uint32_t layer_idx) const;

  const RecordingContext& context_;
  const ModelConfig& config_;
  const Tuning& tuning_;
  const Segment& segment_;
  const PortPlaces& places_;
  const LaneBuffers& buffers_;
  const uint32_t bucket_;
  const bool long_sequences_;
  PhaseRecorder& phases_;
};

}  // namespace tandem::gpu
