// Turns the encoder's stage into launches; see reference/vision_encoder.h for what they compute.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "absl/status/status.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/kernels/matmul.h"
#include "services/gpu_worker/stages/exchange_access.h"
#include "services/gpu_worker/stages/vision_buffers.h"
#include "services/gpu_worker/stages/weight_import.h"
#include "services/gpu_worker/vulkan/command_buffer.h"

namespace tandem::gpu {

// All borrowed.
struct VisionContext {
  KernelSet* kernels = nullptr;
  const WeightSet* weights = nullptr;
  const WeightImport* import = nullptr;
  const VisionBuffers* buffers = nullptr;
  const ExchangeAccess* exchange = nullptr;
  ActivationFormat format = ActivationFormat::kF32;  // of the buffers; kF16: on matrix units
};

// Records a picture in parts, each a command buffer: Begin, then all layers in order, then Finish.
// A part is complete: what it wrote is seen by the part that follows.
class VisionRecorder {
 public:
  // `context`, `recorder`: borrowed; must outlive this.
  VisionRecorder(const VisionContext& context, vulkan::Recorder& recorder);

  // From pixels of picture `picture` of a lane to the first layer's input.
  absl::Status Begin(uint32_t lane, uint32_t picture);
  absl::Status Layer(uint32_t layer_idx);
  // From the last layer's output to soft tokens.
  absl::Status Finish(uint32_t lane, uint32_t picture);

 private:
  // Q, K and V as attention reads them.
  absl::Status Project(uint32_t layer_idx);
  absl::Status Attend(uint32_t layer_idx);
  // The input of the FFN's second matmul.
  absl::Status Activate(uint32_t layer_idx);
  absl::Status Run(const Launch& launch);
  // Matmuls write what the next kernel reads: else, kernels of their own add biases.
  bool on_units() const { return context_.format == ActivationFormat::kF16; }
  struct Product {
    const DeviceTensor* weights = nullptr;
    ActivationFormat input = ActivationFormat::kF32;
    MatrixArgs args;  // without workspace; without matrix units its output is kF32
  };
  // With a matrix of the encoder, for all patches, of activations `x`.
  Product PatchProduct(VisionRole role, uint32_t layer_idx, uint64_t x, uint64_t destination,
                       uint32_t out_stride) const;
  Launch LaunchOf(const Product& product, const DeviceShard& shard,
                  const MatrixWorkspace& workspace) const;
  // All of them may run at the same time.
  absl::Status Multiply(std::initializer_list<Product> products);
  // residual += sums + bias (or = positions + ..., for Begin), and the norm that follows.
  absl::Status AddNorm(uint64_t from, VisionRole bias, uint32_t bias_layer, uint32_t next_layer);

  const DeviceTensor& Matrix(VisionRole role, uint32_t layer_idx = 0) const;
  uint64_t Vector(VisionRole role, uint32_t layer_idx = 0) const;

  const VisionContext& context_;
  const VisionConfig& config_;
  const VisionBuffers& buffers_;
  const Tuning& tuning_;
  vulkan::Recorder& recorder_;
};

}  // namespace tandem::gpu
