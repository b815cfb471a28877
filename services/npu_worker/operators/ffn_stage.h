// A model's Ffn stages on an array: two GEMMs, and row functions before, between and behind them.
//
//   residual += rmsnorm(projection)
//   gate, up  = Wgu rmsnorm(residual)
//   residual += rmsnorm(Wdown (gelu_tanh(gate) * up))
//
// residual, projection: float32 [num_rows, hidden_dim].  Operators hand over to one another in buffers of
// the device: the host writes and reads the residual and the projection alone.  Each layer's weights
// are copied once, when the plan is loaded (array_weights.h).
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
#include "services/npu_worker/operators/layer_rows.h"
#include "services/npu_worker/operators/matrix_product.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/row_command.h"
#include "services/npu_worker/operators/stage_commands.h"

namespace tandem::npu {

// Single-thread.
class FfnStage {
 public:
  // `gemms`, `rows`, the row functions: must stay open for longer than this.  Errors as
  // MatrixProduct::Create and RowCommand::Create.
  static absl::StatusOr<std::unique_ptr<FfnStage>> Create(const OpenedGemms& gemms,
                                                          const OpenedOperator& rows,
                                                          const ModelConfig& config,
                                                          uint32_t max_rows);

  // Of a layer's copies.  Errors as PartsOf.
  static absl::StatusOr<uint64_t> LayerBytes(const OpenedGemms& gemms, const WeightSet& weights,
                                             uint32_t layer_idx);
  // Copies a layer's weights.  Errors as MatrixProduct::CopyWeights.
  absl::Status AddLayer(const WeightSet& weights, uint32_t layer_idx);

  // Computes a layer's stage over rows of the residual, in place, and returns nanoseconds on the device, as
  // the host sees them.  Errors as StageCommands::Execute; the residual has not changed then.
  // REQUIRES AddLayer(layer_idx).
  absl::StatusOr<int64_t> Run(uint32_t layer_idx, std::span<const float> projection,
                              std::span<float> residual, absl::Duration timeout);

 private:
  struct Layer {
    LayerMatrix gate_up, down;
    NpuBuffer norms;  // post-attention, pre-FFN, post-FFN
  };

  FfnStage(OpenedOperator rows, const ModelConfig& config, uint32_t max_rows)
      : rows_(std::move(rows)), config_(config), max_rows_(max_rows) {}
  absl::Status MakeProducts(const OpenedGemms& gemms);
  absl::Status MakeRows();
  std::vector<CommandUse> UsesOf(uint32_t layer_idx) const;

  // Destroyed in the reverse order: what uses a kernel goes before it, and commands, which wait for one that
  // is under way, before its memory.
  const OpenedOperator rows_;
  const ModelConfig config_;
  const uint32_t max_rows_;
  LayerRows projection_, residual_;
  std::map<uint32_t, Layer> layers_;
  std::unique_ptr<MatrixProduct> gate_up_, down_;
  std::unique_ptr<RowCommand> attention_norm_, pre_norm_, geglu_, post_norm_;
  StageCommands commands_;
};

}  // namespace tandem::npu
