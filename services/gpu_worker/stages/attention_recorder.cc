#include "services/gpu_worker/stages/attention_recorder.h"

#include <algorithm>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"

namespace tandem::gpu {

AttentionRecorder::AttentionRecorder(const RecordingContext& context, const Segment& segment,
                                     const PortPlaces& places, const LaneBuffers& buffers,
                                     uint32_t bucket, bool long_sequences, PhaseRecorder& phases)
    : context_(context),
      config_(context.weights->config()),
      tuning_(context.kernels->tuning()),
      segment_(segment),
      places_(places),
      buffers_(buffers),
      bucket_(bucket),
      long_sequences_(long_sequences),
      phases_(phases) {}

uint64_t AttentionRecorder::NormWeight(WeightRole role, uint32_t layer_idx) const {
  return context_.import->Find(*context_.weights->Find(role, layer_idx)).shards[0].plane[0];
}

const vulkan::Buffer& AttentionRecorder::Rotation(uint32_t layer_idx) const {
  return config_.is_global(layer_idx) ? context_.buffers->rotation_global
                                      : context_.buffers->rotation_local;
}

absl::Status AttentionRecorder::Qkv(uint32_t layer_idx) {
  const uint32_t ordinal = StageOrdinal({StageKind::kQkv, layer_idx}, config_.num_layers);
  const bool attends = ordinal < segment_.last_ordinal;
  if (attends && IsFused()) return absl::OkStatus();
  QkNormRopePush push = {.step = buffers_.step.address(),
                         .qkv = buffers_.qkv.address(),
                         .q = places_.WrittenAt(Port::kQ, ordinal),
                         .k = places_.WrittenAt(Port::kK, ordinal),
                         .v = places_.WrittenAt(Port::kV, ordinal),
                         .q_weight = NormWeight(WeightRole::kQNorm, layer_idx),
                         .k_weight = NormWeight(WeightRole::kKNorm, layer_idx),
                         .rotation = Rotation(layer_idx).address(),
                         .num_heads = config_.num_heads,
                         .num_kv_heads = config_.num_kv_heads,
                         .head_dim = config_.head_dim,
                         .epsilon = config_.rms_norm_eps,
                         .block_tokens = context_.kv.block_tokens,
                         .group = GroupOf(config_, layer_idx)};
  if (attends) {
    const KvBuffers& cache = context_.buffers->kv.at(layer_idx);
    push.k = cache.k.address();
    push.v = cache.v.address();
  }
  if (!attends) return Run(QkNormRopeLaunch(tuning_, push, bucket_));
  return Run(QkNormRopeAppendLaunch(tuning_, push, context_.kv.dtype, bucket_));
}

absl::Status AttentionRecorder::Append(uint32_t layer_idx, uint32_t ordinal) {
  const KvBuffers& cache = context_.buffers->kv.at(layer_idx);
  return Run(KvAppendLaunch(tuning_,
                            {.step = buffers_.step.address(),
                             .k = places_.ReadAt(Port::kK, ordinal),
                             .v = places_.ReadAt(Port::kV, ordinal),
                             .k_cache = cache.k.address(),
                             .v_cache = cache.v.address(),
                             .num_kv_heads = config_.num_kv_heads,
                             .head_dim = config_.head_dim,
                             .block_tokens = context_.kv.block_tokens,
                             .group = GroupOf(config_, layer_idx)},
                            context_.kv.dtype, bucket_));
}

// A phase together with Decode: they write different rows.
absl::Status AttentionRecorder::Tiles(uint32_t layer_idx, uint32_t ordinal,
                                      ActivationFormat format) {
  const KvBuffers& cache = context_.buffers->kv.at(layer_idx);
  const KvGroup group = GroupOf(config_, layer_idx);
  const AttentionStepLayout layout(context_.limits, context_.buffers->tile_rows);
  const uint64_t rows = buffers_.attention_step.address();
  return phases_.Record(
      TiledLaunch(tuning_, {.push = {.step = buffers_.step.address(),
                                     .rows = rows,
                                     .tiles = rows + layout.tiles,
                                     .q = places_.ReadAt(Port::kQ, ordinal),
                                     .k_cache = cache.k.address(),
                                     .v_cache = cache.v.address(),
                                     .destination = places_.WrittenAt(Port::kAttention, ordinal),
                                     .num_heads = config_.num_heads,
                                     .num_kv_heads = config_.num_kv_heads,
                                     .group = group,
                                     .window = group == kWindowGroup ? config_.sliding_window : 0,
                                     .scale = config_.attention_scale},
                            .head_dim = config_.head_dim,
                            .block_tokens = context_.kv.block_tokens,
                            .kv_dtype = context_.kv.dtype,
                            .format = format,
                            .max_rows = bucket_,
                            .max_pictures = context_.limits.max_pictures}));
}

absl::Status AttentionRecorder::Decode(uint32_t layer_idx, uint32_t ordinal, bool fused,
                                       ActivationFormat format) {
  const KvBuffers& cache = context_.buffers->kv.at(layer_idx);
  const KvGroup group = GroupOf(config_, layer_idx);
  DecodeArgs args = {
      .push = {.step = buffers_.step.address(),
               .rows = buffers_.attention_step.address(),
               .q = fused ? buffers_.qkv.address() : places_.ReadAt(Port::kQ, ordinal),
               .k_cache = cache.k.address(),
               .v_cache = cache.v.address(),
               .destination = places_.WrittenAt(Port::kAttention, ordinal),
               .partials = buffers_.partials.address(),
               .counters = buffers_.counters.address(),
               .num_heads = config_.num_heads,
               .num_kv_heads = config_.num_kv_heads,
               .group = group,
               .window = group == kWindowGroup ? config_.sliding_window : 0,
               .scale = config_.attention_scale,
               .epsilon = config_.rms_norm_eps},
      .head_dim = config_.head_dim,
      .block_tokens = context_.kv.block_tokens,
      .kv_dtype = context_.kv.dtype,
      .fused = fused,
      .format = format,
      .max_rows = std::min(bucket_, context_.buffers->decode_rows)};
  if (fused) {
    args.push.q_weight = NormWeight(WeightRole::kQNorm, layer_idx);
    args.push.k_weight = NormWeight(WeightRole::kKNorm, layer_idx);
    args.push.rotation = Rotation(layer_idx).address();
  }
  for (; args.push.first_row < bucket_; args.push.first_row += args.max_rows) {
    TANDEM_RETURN_IF_ERROR(Run(DecodeLaunch(tuning_, args)));
  }
  return absl::OkStatus();
}

absl::Status AttentionRecorder::Attend(uint32_t layer_idx, ActivationFormat format) {
  const uint32_t ordinal = StageOrdinal({StageKind::kAttend, layer_idx}, config_.num_layers);
  const bool has_projection = ordinal > segment_.first_ordinal;
  if (!has_projection) TANDEM_RETURN_IF_ERROR(Append(layer_idx, ordinal));
  if (long_sequences_ && context_.buffers->tile_rows > 0) {
    TANDEM_RETURN_IF_ERROR(Tiles(layer_idx, ordinal, format));
  }
  if (tuning_.decode.enabled) {
    return Decode(layer_idx, ordinal, has_projection && IsFused(), format);
  }
  const KvBuffers& cache = context_.buffers->kv.at(layer_idx);
  const KvGroup group = GroupOf(config_, layer_idx);
  return Run(AttentionLaunch(tuning_,
                             {.step = buffers_.step.address(),
                              .q = places_.ReadAt(Port::kQ, ordinal),
                              .k_cache = cache.k.address(),
                              .v_cache = cache.v.address(),
                              .destination = places_.WrittenAt(Port::kAttention, ordinal),
                              .num_heads = config_.num_heads,
                              .num_kv_heads = config_.num_kv_heads,
                              .block_tokens = context_.kv.block_tokens,
                              .group = group,
                              .window = group == kWindowGroup ? config_.sliding_window : 0,
                              .scale = config_.attention_scale},
                             config_.head_dim, context_.kv.dtype, cache.k.bytes(), bucket_,
                             context_.limits.picture_rows));
}

}  // namespace tandem::gpu
