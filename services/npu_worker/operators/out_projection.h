// A model's Out stages on an array: attention output times weights, into the hidden width.
//
//   projection[r, n] = sum_k attention[r, k] * weights[n, k]    [num_rows, hidden_dim], float32
//
// Each layer's weights are copied once, when the plan is loaded (array_weights.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/weights/weight_set.h"
#include "services/npu_worker/operators/matrix_product.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/stage_commands.h"

namespace tandem::npu {

// Single-thread.
class OutProjection {
 public:
  // `gemms`: must stay open for longer than this.  Errors as MatrixProduct::Create.
  static absl::StatusOr<std::unique_ptr<OutProjection>> Create(const OpenedGemms& gemms,
                                                               const ModelConfig& config,
                                                               uint32_t max_rows);

  // Of a layer's copy.  Errors as PartsOf.
  static absl::StatusOr<uint64_t> LayerBytes(const OpenedGemms& gemms, const WeightSet& weights,
                                             uint32_t layer_idx);
  // Copies a layer's weights.  Errors as MatrixProduct::CopyWeights.
  absl::Status AddLayer(const WeightSet& weights, uint32_t layer_idx);

  // Rows of attention output as the stage's input, `dtype` [num_rows][q_dim]: kF16 or kBf16.
  void SetRows(DType dtype, std::span<const uint16_t> attention, uint32_t num_rows);
  // Computes the rows that were set last, into [num_rows][hidden_dim] at `out`, and returns nanoseconds on
  // the device, as the host sees them.  Errors as StageCommands::Execute.  REQUIRES AddLayer(layer_idx).
  absl::StatusOr<int64_t> Run(uint32_t layer_idx, uint32_t num_rows, std::span<float> out,
                              absl::Duration timeout);

 private:
  OutProjection(uint32_t num_inputs, uint32_t num_outputs)
      : num_inputs_(num_inputs), num_outputs_(num_outputs) {}
  std::vector<CommandUse> UsesOf(uint32_t layer_idx) const;

  const uint32_t num_inputs_;
  const uint32_t num_outputs_;
  // Destroyed in the reverse order: commands, which wait for one that is under way, go before its memory.
  std::map<uint32_t, LayerMatrix> weights_;  // by layer
  std::unique_ptr<MatrixProduct> product_;
  StageCommands commands_;
};

}  // namespace tandem::npu
