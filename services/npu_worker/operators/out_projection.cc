#include "services/npu_worker/operators/out_projection.h"

#include <algorithm>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/number_formats.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<OutProjection>> OutProjection::Create(const OpenedGemms& gemms,
                                                                     const ModelConfig& config,
                                                                     uint32_t max_rows) {
  const auto num_inputs = static_cast<uint32_t>(config.q_dim());
  std::unique_ptr<OutProjection> projection(new OutProjection(num_inputs, config.hidden_dim));
  TANDEM_ASSIGN_OR_RETURN(projection->product_,
                          MatrixProduct::Create(gemms, {.max_rows = max_rows,
                                                        .num_outputs = config.hidden_dim,
                                                        .num_inputs = num_inputs}));
  return projection;
}

absl::StatusOr<uint64_t> OutProjection::LayerBytes(const OpenedGemms& gemms,
                                                   const WeightSet& weights, uint32_t layer_idx) {
  return LayerMatrixBytes(gemms, *weights.Find(WeightRole::kOut, layer_idx));
}

absl::Status OutProjection::AddLayer(const WeightSet& weights, uint32_t layer_idx) {
  TANDEM_ASSIGN_OR_RETURN(
      LayerMatrix matrix,
      product_->CopyWeights(weights, *weights.Find(WeightRole::kOut, layer_idx)));
  weights_.insert_or_assign(layer_idx, std::move(matrix));
  return commands_.Prepare(UsesOf(layer_idx));
}

std::vector<CommandUse> OutProjection::UsesOf(uint32_t layer_idx) const {
  std::vector<CommandUse> uses;
  weights_.at(layer_idx).AddTo(uses);
  return uses;
}

void OutProjection::SetRows(DType dtype, std::span<const uint16_t> attention, uint32_t num_rows) {
  TANDEM_CHECK(attention.size() == size_t{num_rows} * num_inputs_);
  GemmRows& rows = product_->rows();
  for (size_t row = 0; row < num_rows; ++row) {
    PortToBf16(dtype, attention.subspan(row * num_inputs_, num_inputs_),
               rows.activations().subspan(row * rows.input_stride(), num_inputs_));
  }
}

absl::StatusOr<int64_t> OutProjection::Run(uint32_t layer_idx, uint32_t num_rows,
                                           std::span<float> out, absl::Duration timeout) {
  TANDEM_CHECK(out.size() == size_t{num_rows} * num_outputs_);
  GemmRows& rows = product_->rows();
  TANDEM_RETURN_IF_ERROR(rows.HandOverRows(num_rows));
  TANDEM_ASSIGN_OR_RETURN(const int64_t ns,
                          commands_.Execute(UsesOf(layer_idx), num_rows, timeout));
  TANDEM_RETURN_IF_ERROR(rows.TakeBackRows(num_rows));
  for (size_t row = 0; row < num_rows; ++row) {
    std::ranges::copy(rows.output().subspan(row * rows.output_stride(), num_outputs_),
                      out.begin() + static_cast<std::ptrdiff_t>(row * num_outputs_));
  }
  return ns;
}

}  // namespace tandem::npu
