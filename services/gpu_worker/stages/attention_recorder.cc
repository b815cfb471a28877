#include "services/gpu_worker/stages/attention_recorder.h"

#include <algorithm>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"

namespace tandem::gpu {

AttentionRecorder::AttentionRecorder(const RecordingContext& context, const Segment& segment,
                                     const PortPlaces& places, const LaneBuffers& buffers,
                                     uint32_t bucket, Sequences sequences, PhaseRecorder& phases)
    : context_(context),
      config_(context.weights->config()),
      tuning_(context.kernels->tuning()),
      segment_(segment),
      places_(places),
      buffers_(buffers),
      bucket_(bucket),
      sequences_(sequences),
      phases_(phases) {}

bool AttentionRecorder::FusesChains(const RecordingContext& context) {
  const Tuning& tuning = context.kernels->tuning();
  if (!tuning.decode.enabled || context.buffers->rules.tile_rows == 0) return tuning.decode.enabled;
  const ModelConfig& config = context.weights->config();
  return HasChainsKernel(tuning, config.num_heads, config.num_kv_heads, config.head_dim);
}

bool AttentionRecorder::IsFused() const {
  if (sequences_ == Sequences::kChains) return FusesChains(context_);
  return tuning_.decode.enabled && sequences_ == Sequences::kShort;
}

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
  if (!attends) return Run(QkNormRopeLaunch(tuning_, push, bucket_, context_.port_dtype));
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

template <typename Push>
void AttentionRecorder::SetCommon(uint32_t layer_idx, uint32_t ordinal, Push& push) const {
  const KvBuffers& cache = context_.buffers->kv.at(layer_idx);
  const KvGroup group = GroupOf(config_, layer_idx);
  push.step = buffers_.step.address();
  push.rows = buffers_.attention_step.address();
  push.k_cache = cache.k.address();
  push.v_cache = cache.v.address();
  push.destination = places_.WrittenAt(Port::kAttention, ordinal);
  push.num_heads = config_.num_heads;
  push.num_kv_heads = config_.num_kv_heads;
  push.group = group;
  push.window = group == kWindowGroup ? config_.sliding_window : 0;
  push.scale = config_.attention_scale;
}

template <typename Push>
void AttentionRecorder::TakeProjection(uint32_t layer_idx, Push& push) const {
  push.q = buffers_.qkv.address();
  push.q_weight = NormWeight(WeightRole::kQNorm, layer_idx);
  push.k_weight = NormWeight(WeightRole::kKNorm, layer_idx);
  push.rotation = Rotation(layer_idx).address();
  push.epsilon = config_.rms_norm_eps;
}

uint64_t AttentionRecorder::TilesAddress() const {
  const AttentionStepLayout layout(context_.limits, context_.buffers->rules);
  return buffers_.attention_step.address() + layout.tiles;
}

// A phase together with Decode: they write different rows.
absl::Status AttentionRecorder::Tiles(uint32_t layer_idx, uint32_t ordinal,
                                      ActivationFormat format) {
  TiledArgs args = {.head_dim = config_.head_dim,
                    .block_tokens = context_.kv.block_tokens,
                    .kv_dtype = context_.kv.dtype,
                    .format = format,
                    .max_rows = bucket_,
                    .max_pictures = context_.limits.max_pictures};
  SetCommon(layer_idx, ordinal, args.push);
  args.push.tiles = TilesAddress();
  args.push.q = places_.ReadAt(Port::kQ, ordinal);
  return phases_.Record(TiledLaunch(tuning_, args));
}

absl::Status AttentionRecorder::Chains(uint32_t layer_idx, uint32_t ordinal,
                                       ActivationFormat format) {
  ChainsArgs args = {.head_dim = config_.head_dim,
                     .block_tokens = context_.kv.block_tokens,
                     .kv_dtype = context_.kv.dtype,
                     .format = format,
                     .max_rows = bucket_};
  SetCommon(layer_idx, ordinal, args.push);
  args.push.tiles = TilesAddress();
  TakeProjection(layer_idx, args.push);
  return phases_.Record(ChainsLaunch(tuning_, args));
}

absl::Status AttentionRecorder::Decode(uint32_t layer_idx, uint32_t ordinal, bool fused,
                                       ActivationFormat format) {
  DecodeArgs args = {.head_dim = config_.head_dim,
                     .block_tokens = context_.kv.block_tokens,
                     .kv_dtype = context_.kv.dtype,
                     .fused = fused,
                     .format = format,
                     .max_rows = std::min(bucket_, context_.buffers->decode_rows)};
  SetCommon(layer_idx, ordinal, args.push);
  args.push.partials = buffers_.partials.address();
  args.push.counters = buffers_.counters.address();
  if (fused) {
    TakeProjection(layer_idx, args.push);
  } else {
    args.push.q = places_.ReadAt(Port::kQ, ordinal);
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
  const bool fused = has_projection && IsFused();
  if (sequences_ != Sequences::kShort && context_.buffers->rules.tile_rows > 0) {
    TANDEM_RETURN_IF_ERROR(fused ? Chains(layer_idx, ordinal, format)
                                 : Tiles(layer_idx, ordinal, format));
  }
  if (tuning_.decode.enabled) return Decode(layer_idx, ordinal, fused, format);
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
