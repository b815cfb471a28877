// Records a layer's attention: from the fused projection to the input of Out.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/gpu_worker/kernels/attention_launches.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/stages/port_places.h"
#include "services/gpu_worker/stages/stage_recorder.h"

namespace tandem::gpu {

// Records for one lane and row bucket.
//
// In a segment with Qkv and Attend, q, k and v need no buffers.  Without long sequences
// (attention_step.h) one kernel does everything, with chains of guesses two side by side, where the
// device's can.  Elsewhere k and v go from the projection to the cache first.
class AttentionRecorder {
 public:
  // All borrowed; must outlive this.  `sequences`: what the step may have.
  AttentionRecorder(const RecordingContext& context, const Segment& segment,
                    const PortPlaces& places, const LaneBuffers& buffers, uint32_t bucket,
                    Sequences sequences, PhaseRecorder& phases);

  // Whether steps with chains of guesses need no launch of their own that writes the cache.
  static bool FusesChains(const RecordingContext& context);

  // Records Qkv after its matmul.
  absl::Status Qkv(uint32_t layer_idx);
  // Writes `format`: f16, or int8 where CanWriteBlocks.
  absl::Status Attend(uint32_t layer_idx, ActivationFormat format);
  bool CanWriteBlocks() const { return tuning_.decode.enabled && config_.head_dim % 32 == 0; }

 private:
  absl::Status Run(const Launch& launch) { return phases_.Run(launch); }
  absl::Status Append(uint32_t layer_idx, uint32_t ordinal);
  absl::Status Tiles(uint32_t layer_idx, uint32_t ordinal, ActivationFormat format);
  absl::Status Chains(uint32_t layer_idx, uint32_t ordinal, ActivationFormat format);
  absl::Status Decode(uint32_t layer_idx, uint32_t ordinal, bool fused, ActivationFormat format);
  // Whether attention takes q, k and v from the projection.
  bool IsFused() const;
  // What the pushes of several kernels have.
  template <typename Push>
  void SetCommon(uint32_t layer_idx, uint32_t ordinal, Push& push) const;
  // Makes the kernel take q, k and v from the fused projection.
  template <typename Push>
  void TakeProjection(uint32_t layer_idx, Push& push) const;
  uint64_t TilesAddress() const;
  uint64_t NormWeight(WeightRole role, uint32_t layer_idx) const;
  const vulkan::Buffer& Rotation(uint32_t layer_idx) const;

  const RecordingContext& context_;
  const ModelConfig& config_;
  const Tuning& tuning_;
  const Segment& segment_;
  const PortPlaces& places_;
  const LaneBuffers& buffers_;
  const uint32_t bucket_;
  const Sequences sequences_;
  PhaseRecorder& phases_;
};

}  // namespace tandem::gpu
