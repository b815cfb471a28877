// Every buffer of a loaded vision encoder, made once.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "services/common/weights/weight_set.h"
#include "services/gpu_worker/kernels/activation_format.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/matrix_launches.h"
#include "services/gpu_worker/kernels/tuning.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/upload.h"

namespace tandem::gpu {

// Positions of a block of the encoder's K and V.
inline constexpr uint32_t kVisionBlockTokens = 32;

// What one picture needs between its launches; pictures run one after another.  N patches, D hidden
// dims, F of the FFN.
struct VisionBuffers {
  vulkan::Buffer patches;    // activations [N, PackedColumns(patch_dim)]
  vulkan::Buffer residual;   // float32 [N, D]
  vulkan::Buffer normed;     // activations [N, D]
  vulkan::Buffer wide;       // float32 [N, D]: the last norm's; kF32: [N, max(3 D, F)]
  vulkan::Buffer sums;       // float32 [N, D]
  vulkan::Buffer q;          // float16 [N, D]
  vulkan::Buffer k, v;       // float16 pages: shaders/include/kv_cache.glsl
  vulkan::Buffer attention;  // float16 [N, D]
  vulkan::Buffer activated;  // activations [N, PackedColumns(F)]
  vulkan::Buffer pooled;     // activations [tokens_per_image, D]
  vulkan::Buffer matrix_sums, matrix_arrivals;  // see MatrixWorkspace; null without matrix units
  // Attention's step: all patches are one picture of one sequence.  Mapped; written once.
  vulkan::Buffer step, attention_step;
  vulkan::Buffer counts;  // mapped; uint32 N, tokens_per_image
  // Of the model.
  vulkan::Buffer positions;         // float32 [N, D]
  vulkan::Buffer projection_bytes;  // turned: a soft token is a product with its rows
  DeviceTensor projection;          // [text_hidden_dim, D]
  uint64_t tiles = 0;               // address of attention's tiles

  uint64_t num_patches() const { return counts.address(); }
  uint64_t num_tokens() const { return counts.address() + sizeof(uint32_t); }
  MatrixWorkspace workspace() const {
    return {.sums = matrix_sums.address(),
            .sums_bytes = matrix_sums.bytes(),
            .arrivals = matrix_arrivals.address()};
  }

  // `format`: of the activations, kF32 or, with matrix units, kF16.  RESOURCE_EXHAUSTED names the
  // buffer and its size.
  static absl::StatusOr<std::unique_ptr<VisionBuffers>> Create(const vulkan::Device& device,
                                                               vulkan::Uploader& uploader,
                                                               const Tuning& tuning,
                                                               const WeightSet& weights,
                                                               ActivationFormat format);

 private:
  absl::Status MakeScratch(const vulkan::Device& device, const VisionConfig& config,
                           ActivationFormat format);
  absl::Status WriteStepOfPatches(const vulkan::Device& device, const Tuning& tuning,
                                  const VisionConfig& config);
  absl::Status UploadWeights(const vulkan::Device& device, vulkan::Uploader& uploader,
                             const WeightSet& weights, ActivationFormat format);
};

}  // namespace tandem::gpu
