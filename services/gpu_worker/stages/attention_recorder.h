// Records a layer's attention: from the fused projection to the input of Out.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/stages/port_places.h"
#include "services/gpu_worker/stages/stage_recorder.h"

namespace tandem::gpu {

// Records for one lane and row bucket.
//
// In a segment with Qkv and Attend, q, k and v need no buffers.  Without long sequences
// (attention_step.h) one kernel does everything.  With them, or where the device uses
// attention.comp, k and v go from the projection to the cache.
class AttentionRecorder {
 public:
  // All borrowed; must outlive this.  `long_sequences`: whether the step may have long sequences.
  AttentionRecorder(const RecordingContext& context, const Segment& segment,
                    const PortPlaces& places, const LaneBuffers& buffers, uint32_t bucket,
                    bool long_sequences, PhaseRecorder& phases);

  // Records Qkv after its matmul.
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
