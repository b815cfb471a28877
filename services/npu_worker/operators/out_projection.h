// A model's Out stages on an array: attention output times weights, into the hidden width.
//
//   projection[r, n] = sum_k attention[r, k] * weights[n, k]    [num_rows, hidden_dim], float32
//
// Each layer's weights are copied once, when the plan is loaded, as bfloat16 in the array's order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/weights/weight_set.h"
#include "services/npu_worker/operators/gemm_commands.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"

namespace tandem::npu {

// Single-thread.
class OutProjection {
 public:
  // Errors as GemmCommands::Create.  `op`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<OutProjection>> Create(std::shared_ptr<NpuDevice> device,
                                                               const NpuOperator& op,
                                                               const ModelConfig& config,
                                                               uint32_t max_rows);

  // Of a layer's copy.
  static uint64_t LayerBytes(const ModelConfig& config);
  // Copies a layer's weights.  RESOURCE_EXHAUSTED: memory.
  absl::Status AddLayer(const WeightSet& weights, uint32_t layer_idx);

  // Rows of attention output as the stage's input, [num_rows][q_dim]: float16, or bfloat16 of the array.
  void SetRows(std::span<const uint16_t> halves, uint32_t num_rows);
  void SetBf16Rows(std::span<const uint16_t> bf16, uint32_t num_rows);
  // Computes the rows that were set last, into [num_rows][hidden_dim] at `out`, and returns nanoseconds on
  // the device, as the host sees them.  Errors as NpuRun::Execute.  REQUIRES AddLayer(layer_idx).
  absl::StatusOr<int64_t> Run(uint32_t layer_idx, uint32_t num_rows, std::span<float> out,
                              absl::Duration timeout);

 private:
  OutProjection(std::shared_ptr<NpuDevice> device, uint32_t num_inputs, uint32_t num_outputs)
      : device_(std::move(device)), num_inputs_(num_inputs), num_outputs_(num_outputs) {}

  // Destroyed in the reverse order: what uses the device goes before it.
  std::shared_ptr<NpuDevice> device_;
  const uint32_t num_inputs_;
  const uint32_t num_outputs_;
  std::unique_ptr<GemmCommands> commands_;
  std::map<uint32_t, NpuBuffer> weights_;  // by layer
};

}  // namespace tandem::npu
