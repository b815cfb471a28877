#include "services/npu_worker/operators/ffn_stage.h"

#include <utility>
#include <vector>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<FfnStage>> FfnStage::Create(const OpenedGemms& gemms,
                                                           const OpenedOperator& rows,
                                                           const ModelConfig& config,
                                                           uint32_t max_rows) {
  std::unique_ptr<FfnStage> stage(new FfnStage(rows, config, max_rows));
  TANDEM_RETURN_IF_ERROR(stage->MakeProducts(gemms));
  TANDEM_RETURN_IF_ERROR(stage->MakeRows());
  return stage;
}

absl::Status FfnStage::MakeProducts(const OpenedGemms& gemms) {
  // A row of gates and ups is as long as GeGLU reads it.
  TANDEM_ASSIGN_OR_RETURN(
      gate_up_, MatrixProduct::Create(gemms, {.max_rows = max_rows_,
                                              .num_outputs = 2 * config_.ffn_dim,
                                              .num_inputs = config_.hidden_dim,
                                              .output_stride = 2 * PaddedWidth(config_.ffn_dim)}));
  TANDEM_ASSIGN_OR_RETURN(down_, MatrixProduct::Create(gemms, {.max_rows = max_rows_,
                                                               .num_outputs = config_.hidden_dim,
                                                               .num_inputs = config_.ffn_dim}));
  return absl::OkStatus();
}

absl::Status FfnStage::MakeRows() {
  TANDEM_ASSIGN_OR_RETURN(projection_,
                          LayerRows::Create(rows_, "first", max_rows_, config_.hidden_dim));
  TANDEM_ASSIGN_OR_RETURN(residual_,
                          LayerRows::Create(rows_, "second", max_rows_, config_.hidden_dim));
  const uint32_t width = residual_.stride();
  const GemmRows &gate_up = gate_up_->rows(), &down = down_->rows();
  const auto make = [&](RowJob job, const NpuBuffer& first, const NpuBuffer& output) {
    job.epsilon = config_.rms_norm_eps;
    return RowCommand::Create(*rows_.kernel, *rows_.op, {.max_rows = max_rows_, .jobs = {job}},
                              {.first = &first, .second = &residual_.buffer(), .output = &output});
  };
  // `norm`: which of a layer's.
  const auto add_norm = [&](uint32_t norm, uint32_t stride) {
    return RowJob{.function = RowFunction::kNormAdd,
                  .size = width,
                  .count = config_.hidden_dim,
                  .first = {.stride = stride},
                  .second = {.stride = width},
                  .output = {.stride = width},
                  .weights = {.offset = norm * width * static_cast<uint32_t>(sizeof(float))}};
  };
  TANDEM_ASSIGN_OR_RETURN(attention_norm_,
                          make(add_norm(0, width), projection_.buffer(), residual_.buffer()));
  TANDEM_ASSIGN_OR_RETURN(
      pre_norm_, make({.function = RowFunction::kNorm,
                       .size = width,
                       .count = config_.hidden_dim,
                       .first = {.stride = width},
                       .output = {.stride = gate_up.input_stride() / 2},
                       .weights = {.offset = width * static_cast<uint32_t>(sizeof(float))}},
                      residual_.buffer(), gate_up.activations_buffer()));
  TANDEM_ASSIGN_OR_RETURN(geglu_, make({.function = RowFunction::kGeglu,
                                        .size = PaddedWidth(config_.ffn_dim),
                                        .first = {.stride = gate_up.output_stride()},
                                        .output = {.stride = down.input_stride() / 2}},
                                       gate_up.output_buffer(), down.activations_buffer()));
  TANDEM_ASSIGN_OR_RETURN(post_norm_, make(add_norm(2, down.output_stride()), down.output_buffer(),
                                           residual_.buffer()));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FfnStage::LayerBytes(const OpenedGemms& gemms, const WeightSet& weights,
                                              uint32_t layer_idx) {
  uint64_t bytes = 3 * PaddedWidth(weights.config().hidden_dim) * sizeof(float);
  for (const WeightRole role : {WeightRole::kGateUp, WeightRole::kDown}) {
    TANDEM_ASSIGN_OR_RETURN(const uint64_t matrix,
                            LayerMatrixBytes(gemms, *weights.Find(role, layer_idx)));
    bytes += matrix;
  }
  return bytes;
}

absl::Status FfnStage::AddLayer(const WeightSet& weights, uint32_t layer_idx) {
  Layer layer;
  TANDEM_ASSIGN_OR_RETURN(
      layer.gate_up, gate_up_->CopyWeights(weights, *weights.Find(WeightRole::kGateUp, layer_idx)));
  TANDEM_ASSIGN_OR_RETURN(layer.down,
                          down_->CopyWeights(weights, *weights.Find(WeightRole::kDown, layer_idx)));
  TANDEM_ASSIGN_OR_RETURN(layer.norms,
                          MakeNormWeights(rows_, weights, layer_idx,
                                          {WeightRole::kPostAttentionNorm, WeightRole::kPreFfnNorm,
                                           WeightRole::kPostFfnNorm}));
  layers_.insert_or_assign(layer_idx, std::move(layer));
  return commands_.Prepare(UsesOf(layer_idx));
}

std::vector<CommandUse> FfnStage::UsesOf(uint32_t layer_idx) const {
  const Layer& layer = layers_.at(layer_idx);
  std::vector<CommandUse> uses = {{attention_norm_.get(), &layer.norms},
                                  {pre_norm_.get(), &layer.norms}};
  layer.gate_up.AddTo(uses);
  uses.push_back({geglu_.get(), nullptr});
  layer.down.AddTo(uses);
  uses.push_back({post_norm_.get(), &layer.norms});
  return uses;
}

absl::StatusOr<int64_t> FfnStage::Run(uint32_t layer_idx, std::span<const float> projection,
                                      std::span<float> residual, absl::Duration timeout) {
  TANDEM_CHECK(projection.size() == residual.size());
  const auto num_rows = static_cast<uint32_t>(residual.size() / config_.hidden_dim);
  TANDEM_RETURN_IF_ERROR(projection_.Set(projection));
  TANDEM_RETURN_IF_ERROR(residual_.Set(residual));
  TANDEM_ASSIGN_OR_RETURN(const int64_t ns,
                          commands_.Execute(UsesOf(layer_idx), num_rows, timeout));
  TANDEM_RETURN_IF_ERROR(residual_.Get(residual));
  return ns;
}

}  // namespace tandem::npu
