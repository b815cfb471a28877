#include "services/common/worker/stage_work.h"

#include <algorithm>

namespace tandem {
namespace {

// Bytes of an element, by the ports' formats.
constexpr uint64_t kResidualBytes = 4;
constexpr uint64_t kHeadBytes = 2;  // q, k, v, attention's output

uint64_t BytesOf(const PackedTensor& tensor) {
  uint64_t bytes = 0;
  for (const Shard& shard : tensor.shards) bytes += ShardBytes(tensor, shard);
  return bytes;
}

uint64_t MatmulOperations(const PackedTensor& tensor) {
  return IsNorm(tensor.role) ? 0 : 2 * tensor.shape.rows * tensor.shape.cols;
}

}  // namespace

SeenPositions PositionsSeen(uint64_t first, uint64_t num_rows, uint64_t window) {
  // Rows that see all earlier positions: those below position window - 1.
  uint64_t num_full = num_rows;
  if (window != 0) num_full = std::min(num_rows, window - 1 - std::min(window - 1, first));
  const uint64_t first_seen = window != 0 && first + 1 > window ? first + 1 - window : 0;
  return {.earlier = first - first_seen,
          .pairs = num_full * (2 * first + num_full + 1) / 2 + (num_rows - num_full) * window};
}

SegmentCosts::SegmentCosts(const Segment& segment, const WeightSet& weights, DType kv_dtype) {
  const ModelConfig& config = weights.config();
  kv_position_bytes_ = 2 * RowBytes(kv_dtype, config.kv_dim());
  pair_operations_ = 4 * uint64_t{config.q_dim()};  // q k^T and weights times v
  window_ = config.sliding_window;
  for (uint32_t o = segment.first_ordinal; o <= segment.last_ordinal; ++o) {
    const Stage stage = StageAt(o, config.num_layers);
    const bool before_head = stage.kind == StageKind::kFfn &&
                             o + 2 == NumStages(config.num_layers) && segment.last_ordinal == o + 1;
    AddStage(stage, weights, before_head ? last_ffn_ : kinds_[static_cast<int>(stage.kind)]);
  }
}

void SegmentCosts::AddStage(Stage stage, const WeightSet& weights, Kind& kind) {
  const ModelConfig& config = weights.config();
  const uint64_t hidden_bytes = kResidualBytes * config.hidden_dim;
  const uint64_t q_bytes = kHeadBytes * config.q_dim();
  const uint64_t qkv_bytes = kHeadBytes * config.qkv_dim();
  const auto add_weights = [&kind](const PackedTensor& tensor) {
    kind.weight_bytes += BytesOf(tensor);
    kind.row_operations += MatmulOperations(tensor);
  };
  switch (stage.kind) {
    case StageKind::kVision:
      return AddVision(weights, kind);
    case StageKind::kEmbed: {
      const PackedTensor& table = *weights.Find(WeightRole::kEmbedding);
      kind.row_bytes += BytesOf(table) / table.shape.rows + hidden_bytes;
      return;
    }
    case StageKind::kAttend:
      ++attend_layers_[config.is_global(stage.layer_idx) ? kGlobalGroup : kWindowGroup];
      kind.row_bytes += qkv_bytes + kv_position_bytes_ + q_bytes;
      return;
    case StageKind::kHead:
      add_weights(weights.head());
      add_weights(*weights.Find(WeightRole::kFinalNorm));
      kind.row_bytes += hidden_bytes;
      return;
    case StageKind::kQkv:
      kind.row_bytes += hidden_bytes + qkv_bytes;
      break;
    case StageKind::kOut:
      kind.row_bytes += q_bytes + hidden_bytes;
      break;
    case StageKind::kFfn:
      kind.row_bytes += 3 * hidden_bytes;  // projection and residual in, residual out
      break;
  }
  for (const WeightRole role : RolesOfStage(stage.kind)) {
    add_weights(*weights.Find(role, stage.layer_idx));
  }
}

void SegmentCosts::AddVision(const WeightSet& weights, Kind& kind) {
  const VisionConfig& vision = *weights.config().vision;
  const uint64_t patches = vision.num_patches();
  for (const PackedTensor& tensor : weights.vision_tensors()) {
    kind.weight_bytes += BytesOf(tensor);
    const VisionRole role = ToVisionRole(tensor.role);
    if (role == VisionRole::kPositions) continue;
    kind.row_operations += MatmulOperations(tensor) *
                           (role == VisionRole::kProjection ? vision.tokens_per_image : patches);
  }
  kind.row_operations += vision.num_layers * 4 * patches * patches * vision.hidden_dim;
  kind.row_bytes += sizeof(float) * (3 * uint64_t{vision.image_size} * vision.image_size +
                                     uint64_t{vision.tokens_per_image} * vision.text_hidden_dim);
}

void SegmentCosts::Add(const Kind& kind, uint64_t num_rows, StageWork& work) {
  if (num_rows == 0) return;
  work.bytes += kind.weight_bytes + num_rows * kind.row_bytes;
  work.operations += num_rows * kind.row_operations;
}

SegmentWork SegmentCosts::Of(const StepBatch& step) const {
  SegmentWork work;
  uint64_t pooled_rows = 0;
  for (const uint32_t sequence : step.pooled) pooled_rows += step.sequences[sequence].num_rows;
  for (int k = 0; k < kNumStageKinds; ++k) {
    const auto kind = static_cast<StageKind>(k);
    const bool head = kind == StageKind::kHead;
    if (head) work[k].bytes += pooled_rows * kinds_[k].row_bytes;
    const size_t num_rows = head                         ? step.outputs.size()
                            : kind == StageKind::kVision ? step.pictures.size()
                                                         : step.rows.size();
    Add(kinds_[k], num_rows, work[k]);
  }
  Add(last_ffn_, step.pooled.empty() ? step.outputs.size() : step.rows.size(),
      work[static_cast<int>(StageKind::kFfn)]);
  if (attend_layers_[kGlobalGroup] + attend_layers_[kWindowGroup] == 0) return work;
  StageWork& attend = work[static_cast<int>(StageKind::kAttend)];
  for (const SequenceEntry& sequence : step.sequences) {
    const uint64_t first = step.rows[sequence.first_row].position;
    for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
      const SeenPositions seen =
          PositionsSeen(first, sequence.num_rows, group == kGlobalGroup ? 0 : window_);
      attend.bytes += attend_layers_[group] * seen.earlier * kv_position_bytes_;
      attend.operations += attend_layers_[group] * seen.pairs * pair_operations_;
    }
  }
  return work;
}

}  // namespace tandem
