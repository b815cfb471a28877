#include "services/npu_worker/operators/qkv_stage.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/number_formats.h"

namespace tandem::npu {
namespace {

constexpr auto kFloatBytes = static_cast<uint32_t>(sizeof(float));

}  // namespace

absl::StatusOr<std::unique_ptr<QkvStage>> QkvStage::Create(const OpenedGemms& gemms,
                                                           const OpenedOperator& rows,
                                                           const ModelConfig& config,
                                                           uint32_t max_rows) {
  if (config.head_dim != 64 && config.head_dim != 128 && config.head_dim != 256) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "Qkv with head size %d, the NPU rotates heads of 64, 128 and 256", config.head_dim));
  }
  std::unique_ptr<QkvStage> stage(new QkvStage(rows, config, max_rows));
  TANDEM_ASSIGN_OR_RETURN(
      stage->qkv_,
      MatrixProduct::Create(gemms, {.max_rows = max_rows,
                                    .num_outputs = static_cast<uint32_t>(config.qkv_dim()),
                                    .num_inputs = config.hidden_dim}));
  TANDEM_RETURN_IF_ERROR(stage->MakeNorm());
  const uint64_t head_bytes = uint64_t{PaddedJobRows(max_rows)} * stage->HeadWords() * 4;
  TANDEM_ASSIGN_OR_RETURN(stage->heads_,
                          RowCommand::MakeBuffer(*rows.kernel, *rows.op, "output", head_bytes));
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    TANDEM_RETURN_IF_ERROR(stage->MakeRotation(group));
  }
  return stage;
}

absl::Status QkvStage::MakeNorm() {
  TANDEM_ASSIGN_OR_RETURN(residual_,
                          LayerRows::Create(rows_, "first", max_rows_, config_.hidden_dim));
  const RowJob job = {.function = RowFunction::kNorm,
                      .size = residual_.stride(),
                      .count = config_.hidden_dim,
                      .epsilon = config_.rms_norm_eps,
                      .first = {.stride = residual_.stride()},
                      .output = {.stride = qkv_->rows().input_stride() / 2}};
  TANDEM_ASSIGN_OR_RETURN(
      norm_, RowCommand::Create(
                 *rows_.kernel, *rows_.op, {.max_rows = max_rows_, .jobs = {job}},
                 {.first = &residual_.buffer(), .output = &qkv_->rows().activations_buffer()}));
  return absl::OkStatus();
}

absl::Status QkvStage::MakeRotation(KvGroup group) {
  Rotation& rotation = rotations_[group];
  const bool is_global = group == kGlobalGroup;
  const double theta = is_global ? config_.rope_theta_global : config_.rope_theta_local;
  const float scale = is_global ? config_.rope_scale_global : 1.0f;
  for (uint32_t i = 0; i < config_.head_dim / 2; ++i) {
    const double frequency = 1.0 / std::pow(theta, 2.0 * i / config_.head_dim);
    rotation.frequencies.push_back(static_cast<float>(frequency) / scale);
  }
  TANDEM_ASSIGN_OR_RETURN(rotation.table,
                          LayerRows::Create(rows_, "first", max_rows_, config_.head_dim));
  const auto q_dim = static_cast<uint32_t>(config_.q_dim());
  const RowJob q = {.function = RowFunction::kRope,
                    .size = config_.head_dim,
                    .num_heads = config_.num_heads,
                    .epsilon = config_.rms_norm_eps,
                    .first = {.stride = rotation.table.stride()},
                    .second = {.stride = qkv_->rows().output_stride()},
                    .output = {.stride = HeadWords()}};
  RowJob k = q;
  k.num_heads = config_.num_kv_heads;
  k.second.place.offset = q_dim * kFloatBytes;
  k.output.place.offset = q_dim * static_cast<uint32_t>(sizeof(uint16_t));
  k.weights.offset = config_.head_dim * kFloatBytes;
  TANDEM_ASSIGN_OR_RETURN(
      rotation.turn,
      RowCommand::Create(*rows_.kernel, *rows_.op, {.max_rows = max_rows_, .jobs = {q, k}},
                         {.first = &rotation.table.buffer(),
                          .second = &qkv_->rows().output_buffer(),
                          .output = &heads_}));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> QkvStage::LayerBytes(const OpenedGemms& gemms, const WeightSet& weights,
                                              uint32_t layer_idx) {
  TANDEM_ASSIGN_OR_RETURN(const uint64_t matrix,
                          LayerMatrixBytes(gemms, *weights.Find(WeightRole::kQkv, layer_idx)));
  const ModelConfig& config = weights.config();
  return matrix +
         (PaddedWidth(config.hidden_dim) + 2 * PaddedWidth(config.head_dim)) * sizeof(float);
}

absl::Status QkvStage::AddLayer(const WeightSet& weights, uint32_t layer_idx) {
  Layer layer;
  TANDEM_ASSIGN_OR_RETURN(layer.qkv,
                          qkv_->CopyWeights(weights, *weights.Find(WeightRole::kQkv, layer_idx)));
  TANDEM_ASSIGN_OR_RETURN(layer.input_norm,
                          MakeNormWeights(rows_, weights, layer_idx, {WeightRole::kInputNorm}));
  TANDEM_ASSIGN_OR_RETURN(
      layer.head_norms,
      MakeNormWeights(rows_, weights, layer_idx, {WeightRole::kQNorm, WeightRole::kKNorm}));
  layers_.insert_or_assign(layer_idx, std::move(layer));
  return commands_.Prepare(UsesOf(layer_idx));
}

std::vector<CommandUse> QkvStage::UsesOf(uint32_t layer_idx) const {
  const Layer& layer = layers_.at(layer_idx);
  std::vector<CommandUse> uses = {{norm_.get(), &layer.input_norm}};
  layer.qkv.AddTo(uses);
  uses.push_back({rotations_[GroupOf(layer_idx)].turn.get(), &layer.head_norms});
  return uses;
}

absl::Status QkvStage::SetPositions(std::span<const RowEntry> rows, Rotation& rotation) {
  std::vector<uint32_t> positions;
  for (const RowEntry& row : rows) positions.push_back(row.position);
  if (positions == rotation.positions) return absl::OkStatus();
  // As the models' own implementation does it: angles in float32.
  std::vector<float> table;
  for (const uint32_t position : positions) {
    for (const bool is_sine : {false, true}) {
      for (const float frequency : rotation.frequencies) {
        const float angle = static_cast<float>(position) * frequency;
        table.push_back(is_sine ? std::sin(angle) : std::cos(angle));
      }
    }
  }
  rotation.positions.clear();
  TANDEM_RETURN_IF_ERROR(rotation.table.Set(table));
  rotation.positions = std::move(positions);
  return absl::OkStatus();
}

absl::Status QkvStage::TakeBack(size_t num_rows, const Output& output) const {
  TANDEM_RETURN_IF_ERROR(heads_.SyncFromDevice(0, num_rows * HeadWords() * 4));
  TANDEM_RETURN_IF_ERROR(qkv_->rows().TakeBackRows(static_cast<uint32_t>(num_rows)));
  const size_t q_dim = config_.q_dim(), kv_dim = config_.kv_dim();
  const auto* const heads = reinterpret_cast<const uint16_t*>(heads_.data());
  for (size_t row = 0; row < num_rows; ++row) {
    const std::span<const uint16_t> of_row(heads + row * (q_dim + kv_dim), q_dim + kv_dim);
    Bf16ToPort(output.dtype, of_row.first(q_dim), output.q.subspan(row * q_dim, q_dim));
    Bf16ToPort(output.dtype, of_row.last(kv_dim), output.k.subspan(row * kv_dim, kv_dim));
    const auto values =
        qkv_->rows().output().subspan(row * qkv_->rows().output_stride() + q_dim + kv_dim, kv_dim);
    std::ranges::transform(values, output.v.begin() + static_cast<std::ptrdiff_t>(row * kv_dim),
                           output.dtype == DType::kBf16 ? FloatToBf16 : FloatToHalf);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> QkvStage::Run(uint32_t layer_idx, std::span<const RowEntry> rows,
                                      std::span<const float> residual, const Output& output,
                                      absl::Duration timeout) {
  TANDEM_CHECK(residual.size() == rows.size() * config_.hidden_dim);
  const auto num_rows = static_cast<uint32_t>(rows.size());
  TANDEM_RETURN_IF_ERROR(SetPositions(rows, rotations_[GroupOf(layer_idx)]));
  TANDEM_RETURN_IF_ERROR(residual_.Set(residual));
  TANDEM_ASSIGN_OR_RETURN(const int64_t ns,
                          commands_.Execute(UsesOf(layer_idx), num_rows, timeout));
  TANDEM_RETURN_IF_ERROR(TakeBack(num_rows, output));
  return ns;
}

}  // namespace tandem::npu
