// A model's Qkv stages on an array: a norm, a GEMM, and the norm and rotation of heads.
//
//   q, k, v = split(Wqkv rmsnorm(residual));  q = rotate(rmsnorm(q)), k = rotate(rmsnorm(k))
//
// The host makes the cosines and sines of the step's positions, and puts q, k and v into the exchange
// region, in bfloat16 or converted to float16.  Each layer's weights are copied once, when the plan is loaded (array_weights.h).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/step/step_batch.h"
#include "services/common/weights/weight_set.h"
#include "services/npu_worker/operators/layer_rows.h"
#include "services/npu_worker/operators/matrix_product.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/row_command.h"
#include "services/npu_worker/operators/stage_commands.h"

namespace tandem::npu {

// Single-thread.
class QkvStage {
 public:
  // `dtype`, kF16 or kBf16: [num_rows][num_heads][head_dim], then twice [num_rows][num_kv_heads][head_dim].
  struct Output {
    std::span<uint16_t> q, k, v;
    DType dtype = DType::kF16;
  };

  // As FfnStage::Create; FAILED_PRECONDITION: heads of another size than 64, 128 or 256.
  static absl::StatusOr<std::unique_ptr<QkvStage>> Create(const OpenedGemms& gemms,
                                                          const OpenedOperator& rows,
                                                          const ModelConfig& config,
                                                          uint32_t max_rows);

  // Of a layer's copies.  Errors as PartsOf.
  static absl::StatusOr<uint64_t> LayerBytes(const OpenedGemms& gemms, const WeightSet& weights,
                                             uint32_t layer_idx);
  // Copies a layer's weights.  Errors as MatrixProduct::CopyWeights.
  absl::Status AddLayer(const WeightSet& weights, uint32_t layer_idx);

  // Computes a layer's stage over rows of the residual, [rows.size()][hidden_dim], and returns
  // nanoseconds on the device, as the host sees them.  Errors as StageCommands::Execute.
  // REQUIRES AddLayer(layer_idx).
  absl::StatusOr<int64_t> Run(uint32_t layer_idx, std::span<const RowEntry> rows,
                              std::span<const float> residual, const Output& output,
                              absl::Duration timeout);

 private:
  struct Layer {
    LayerMatrix qkv;
    NpuBuffer input_norm;
    NpuBuffer head_norms;  // of q, of k
  };
  // The rotation of one group's layers.
  struct Rotation {
    std::vector<float> frequencies;   // [head_dim / 2]
    LayerRows table;                  // cosines, then sines, of each row's position
    std::vector<uint32_t> positions;  // that the table is for
    std::unique_ptr<RowCommand> turn;
  };

  QkvStage(OpenedOperator rows, const ModelConfig& config, uint32_t max_rows)
      : rows_(std::move(rows)), config_(config), max_rows_(max_rows) {}
  absl::Status MakeNorm();
  absl::Status MakeRotation(KvGroup group);
  KvGroup GroupOf(uint32_t layer_idx) const {
    return config_.is_global(layer_idx) ? kGlobalGroup : kWindowGroup;
  }
  // Words of a row of q's and k's heads in bfloat16.
  uint32_t HeadWords() const {
    return static_cast<uint32_t>(config_.q_dim() + config_.kv_dim()) / 2;
  }
  static absl::Status SetPositions(std::span<const RowEntry> rows, Rotation& rotation);
  std::vector<CommandUse> UsesOf(uint32_t layer_idx) const;
  absl::Status TakeBack(size_t num_rows, const Output& output) const;

  // Destroyed in the reverse order: what uses a kernel goes before it, and commands, which wait for one that
  // is under way, before its memory.
  const OpenedOperator rows_;
  const ModelConfig config_;
  const uint32_t max_rows_;
  LayerRows residual_;
  std::map<uint32_t, Layer> layers_;
  NpuBuffer heads_;  // bfloat16 [max_rows][num_heads + num_kv_heads][head_dim]
  std::unique_ptr<MatrixProduct> qkv_;
  std::unique_ptr<RowCommand> norm_;
  std::array<Rotation, kNumKvGroups> rotations_;
  StageCommands commands_;
};

}  // namespace tandem::npu
