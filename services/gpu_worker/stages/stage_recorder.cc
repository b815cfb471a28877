#include "services/gpu_worker/stages/stage_recorder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/stages/attention_recorder.h"

namespace tandem::gpu {
namespace {

// Most rows of a step that uses dependency counters.  With more rows most matmuls run in kernels
// that have none.
constexpr uint32_t kMostCountedRows = 4;

constexpr uint64_t kRowCount = offsetof(StepHeader, num_rows);
constexpr uint64_t kOutputCount = offsetof(StepHeader, num_outputs);

}  // namespace

StageRecorder::StageRecorder(const RecordingContext& context, const Segment& segment, uint32_t lane,
                             uint32_t bucket, Sequences sequences, vulkan::Recorder& recorder)
    : context_(context),
      config_(context.weights->config()),
      tuning_(context.kernels->tuning()),
      segment_(segment),
      buffers_(context.buffers->lanes[lane]),
      places_(segment, config_.num_layers, *context.exchange, buffers_, lane),
      lane_(lane),
      bucket_(bucket),
      phases_(*context.kernels, bucket <= kMostCountedRows ? context.phases : nullptr, recorder),
      step_(buffers_.step.address()),
      attention_(std::make_unique<AttentionRecorder>(context, segment, places_, buffers_, bucket,
                                                     sequences, phases_)),
      fusions_(ChooseFusions(
          tuning_, WeightsOfLayers(), config_.hidden_dim,
          {.writes_own = attention_->CanWriteBlocks(),
           .from_elsewhere = context.port_dtype == DType::kBf16 ? ActivationFormat::kBf16
                                                                : ActivationFormat::kF16},
          bucket)) {}

StageRecorder::~StageRecorder() = default;

absl::Status StageRecorder::Multiply(const Matmul& matmul, const DeviceTensor& weights,
                                     const MatmulArgs& args) {
  return Multiply({&matmul, 1}, {&weights, 1}, args);
}

absl::Status StageRecorder::Multiply(std::span<const Matmul> matmuls,
                                     std::span<const DeviceTensor> parts, MatmulArgs args) {
  args.workspace = buffers_.matrix_workspace();
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const DeviceShard& shard : parts[i].shards) {
      // One workspace: its users wait for each other.
      const bool uses_workspace = matmuls[i].kernel == MatmulKernel::kMatrix;
      if (uses_workspace && shard.first_row > 0) phases_.Next();
      TANDEM_RETURN_IF_ERROR(
          phases_.Record(MatmulLaunch(tuning_, matmuls[i], parts[i], shard, args)));
      // One launch writes the residual.
      if (args.norm.has_value()) args.norm->updated = 0;
    }
  }
  phases_.Next();
  return absl::OkStatus();
}

std::span<const DeviceTensor> StageRecorder::QkvWeights(uint32_t layer_idx) const {
  return context_.import->Parts(*context_.weights->Find(WeightRole::kQkv, layer_idx));
}

std::vector<LayerWeights> StageRecorder::WeightsOfLayers() const {
  std::vector<LayerWeights> layers(config_.num_layers);
  for (uint32_t i = segment_.first_ordinal; i <= segment_.last_ordinal; ++i) {
    const Stage stage = StageAt(i, config_.num_layers);
    LayerWeights& layer = layers[stage.layer_idx];
    if (stage.kind == StageKind::kQkv) layer.qkv = QkvWeights(stage.layer_idx);
    if (stage.kind == StageKind::kAttend) layer.attends = true;
    if (stage.kind == StageKind::kOut) layer.out = &Weight(WeightRole::kOut, stage.layer_idx);
    if (stage.kind != StageKind::kFfn) continue;
    layer.gate_up = &Weight(WeightRole::kGateUp, stage.layer_idx);
    layer.down = &Weight(WeightRole::kDown, stage.layer_idx);
  }
  return layers;
}

absl::Status StageRecorder::AddNorm(AddNormPush push, uint32_t split_k, ActivationFormat format,
                                    NormRows rows) {
  push.split_stride = bucket_ * config_.hidden_dim;
  return Run(AddNormLaunch(tuning_, push, bucket_, format, split_k, rows));
}

const DeviceTensor& StageRecorder::Weight(WeightRole role, uint32_t layer_idx) const {
  return context_.import->Find(*context_.weights->Find(role, layer_idx));
}

uint64_t StageRecorder::NormWeight(WeightRole role, uint32_t layer_idx) const {
  return Weight(role, layer_idx).shards[0].plane[0];
}

absl::Status StageRecorder::CopyResidual(uint64_t from, uint64_t to) {
  return Run(CopyRowsLaunch(tuning_,
                            {.count = step_ + kRowCount,
                             .source = from,
                             .destination = to,
                             .cols = config_.hidden_dim,
                             .source_stride = config_.hidden_dim,
                             .destination_stride = config_.hidden_dim},
                            bucket_));
}

absl::Status StageRecorder::Begin() {
  if (!Has(segment_.inputs, Port::kResidual)) return absl::OkStatus();
  return CopyResidual(places_.Shared(Port::kResidual), buffers_.residual.address());
}

absl::Status StageRecorder::Finish() {
  if (!Has(segment_.outputs, Port::kResidual)) return absl::OkStatus();
  return CopyResidual(buffers_.residual.address(), places_.Shared(Port::kResidual));
}

absl::Status StageRecorder::Record(Stage stage) {
  switch (stage.kind) {
    case StageKind::kEmbed:
      return Embed();
    case StageKind::kQkv:
      return Qkv(stage.layer_idx);
    case StageKind::kAttend:
      return attention_->Attend(stage.layer_idx, fusions_[stage.layer_idx].out.input);
    case StageKind::kOut:
      return Out(stage.layer_idx);
    case StageKind::kFfn:
      return Ffn(stage.layer_idx, /*outputs_alone=*/false);
    case StageKind::kHead:
    case StageKind::kVision:
      break;
  }
  return absl::InternalError(
      absl::StrFormat("%s is not recorded here", std::string(StageKindName(stage.kind))));
}

absl::Status StageRecorder::Embed() {
  const DeviceTensor& table = Weight(WeightRole::kEmbedding);
  EmbedArgs args = {.step = step_,
                    .guesses = context_.buffers->guesses.address(),
                    .destination = buffers_.residual.address(),
                    .scale = config_.embedding_scale,
                    .max_rows = bucket_};
  if (context_.limits.max_pictures > 0) {
    args.soft_tokens = context_.exchange->Address(lane_, context_.exchange->layout().soft_tokens);
  }
  for (const DeviceShard& shard : table.shards) {
    TANDEM_RETURN_IF_ERROR(phases_.Record(EmbedLaunch(tuning_, table, shard, args)));
  }
  phases_.Next();
  return absl::OkStatus();
}

absl::Status StageRecorder::Qkv(uint32_t layer_idx) {
  const std::span<const DeviceTensor> parts = QkvWeights(layer_idx);
  const LayerFusion& fusion = fusions_[layer_idx];
  MatmulArgs args = {.count = step_ + kRowCount,
                     .x = buffers_.normed.address(),
                     .destination = buffers_.qkv.address(),
                     .out_stride = config_.qkv_dim(),
                     .max_rows = bucket_};
  if (fusion.qkv_norm == QkvNorm::kInQkv) {
    args.x = buffers_.projection.address();
    args.norm = InputNorm{.split_k = fusions_[layer_idx - 1].down.split_k(),
                          .weight = NormWeight(WeightRole::kPostFfnNorm, layer_idx - 1),
                          .next_weight = NormWeight(WeightRole::kInputNorm, layer_idx),
                          .residual = buffers_.updated.address(),
                          .updated = buffers_.residual.address(),
                          .epsilon = config_.rms_norm_eps};
  } else if (fusion.qkv_norm == QkvNorm::kAlone) {
    TANDEM_RETURN_IF_ERROR(
        Run(RmsNormLaunch(tuning_,
                          {.step = step_,
                           .source = buffers_.residual.address(),
                           .weight = NormWeight(WeightRole::kInputNorm, layer_idx),
                           .destination = buffers_.normed.address(),
                           .cols = config_.hidden_dim,
                           .epsilon = config_.rms_norm_eps},
                          false, bucket_, fusion.qkv[0].input)));
  }
  TANDEM_RETURN_IF_ERROR(Multiply(fusion.qkv, parts, args));
  return attention_->Qkv(layer_idx);
}

absl::Status StageRecorder::Out(uint32_t layer_idx) {
  const uint32_t ordinal = StageOrdinal({StageKind::kOut, layer_idx}, config_.num_layers);
  const DeviceTensor& weights = Weight(WeightRole::kOut, layer_idx);
  const Matmul& matmul = fusions_[layer_idx].out;
  // Partial sums stay on this worker.  Another worker gets their sum, with the same bits as the
  // norm's.
  const uint64_t destination = places_.WrittenAt(Port::kProjection, ordinal);
  const uint64_t split = buffers_.projection.address();
  const bool adds = matmul.split_k() > 1 && destination != split;
  const uint32_t split_stride = bucket_ * config_.hidden_dim;
  TANDEM_RETURN_IF_ERROR(Multiply(matmul, weights,
                                  {.count = step_ + kRowCount,
                                   .x = places_.ReadAt(Port::kAttention, ordinal),
                                   .destination = adds ? split : destination,
                                   .out_stride = config_.hidden_dim,
                                   .split_stride = split_stride,
                                   .max_rows = bucket_}));
  if (!adds) return absl::OkStatus();
  return Run(AddSplitKLaunch(tuning_,
                             {.count = step_ + kRowCount,
                              .source = split,
                              .destination = destination,
                              .cols = config_.hidden_dim,
                              .split_stride = split_stride},
                             matmul.split_k(), bucket_));
}

bool StageRecorder::CanLeaveLastFfn() const {
  const uint32_t head = NumStages(config_.num_layers) - 1;
  return segment_.last_ordinal == head && segment_.first_ordinal < head &&
         fusions_.back().out_split_k == 1;
}

absl::Status StageRecorder::RecordOutputsFfn() {
  return Ffn(config_.num_layers - 1, /*outputs_alone=*/true);
}

absl::Status StageRecorder::Ffn(uint32_t layer_idx, bool outputs_alone) {
  const uint32_t ordinal = StageOrdinal({StageKind::kFfn, layer_idx}, config_.num_layers);
  AddNormPush norm{.step = step_,
                   .source = places_.ReadAt(Port::kProjection, ordinal),
                   .weight = NormWeight(WeightRole::kPostAttentionNorm, layer_idx),
                   .residual = buffers_.residual.address(),
                   .next_weight = NormWeight(WeightRole::kPreFfnNorm, layer_idx),
                   .normed = buffers_.normed.address(),
                   .cols = config_.hidden_dim,
                   .epsilon = config_.rms_norm_eps,
                   .updated = buffers_.residual.address()};
  const DeviceTensor& gate_up = Weight(WeightRole::kGateUp, layer_idx);
  const DeviceTensor& down = Weight(WeightRole::kDown, layer_idx);
  const LayerFusion& fusion = fusions_[layer_idx];
  // The Ffn of the outputs alone follows an Out of more rows, which left its whole sum
  // (CanLeaveLastFfn).
  const uint32_t out_split_k = outputs_alone ? 1 : fusion.out_split_k;
  const uint64_t count = step_ + (outputs_alone ? kOutputCount : kRowCount);
  MatmulArgs args = {.count = count,
                     .x = buffers_.normed.address(),
                     .destination = buffers_.activated.address(),
                     .out_stride = config_.ffn_dim,
                     .geglu = true,
                     .out_format = fusion.down.input,
                     .max_rows = bucket_};
  if (fusion.gate_up_has_norm && !outputs_alone) {
    // One workgroup writes what all read, so it goes to another place.
    norm.updated = buffers_.updated.address();
    args.x = norm.source;
    args.norm = InputNorm{.split_k = out_split_k,
                          .weight = norm.weight,
                          .next_weight = norm.next_weight,
                          .residual = norm.residual,
                          .updated = norm.updated,
                          .epsilon = norm.epsilon};
    std::swap(norm.residual, norm.updated);
  } else {
    TANDEM_RETURN_IF_ERROR(AddNorm(norm, out_split_k, fusion.gate_up.input,
                                   outputs_alone ? NormRows::kGathered : NormRows::kStep));
  }
  TANDEM_RETURN_IF_ERROR(Multiply(fusion.gate_up, gate_up, args));
  TANDEM_RETURN_IF_ERROR(Multiply(fusion.down, down,
                                  {.count = count,
                                   .x = buffers_.activated.address(),
                                   .destination = buffers_.projection.address(),
                                   .out_stride = config_.hidden_dim,
                                   .split_stride = bucket_ * config_.hidden_dim,
                                   .max_rows = bucket_}));
  // The next layer's input norm goes along where it runs here.
  const bool goes_on = layer_idx + 1 < config_.num_layers && segment_.last_ordinal > ordinal;
  if (goes_on && fusions_[layer_idx + 1].qkv_norm == QkvNorm::kInQkv) return absl::OkStatus();
  norm.source = buffers_.projection.address();
  norm.weight = NormWeight(WeightRole::kPostFfnNorm, layer_idx);
  norm.next_weight = goes_on ? NormWeight(WeightRole::kInputNorm, layer_idx + 1) : 0;
  return AddNorm(norm, fusion.down.split_k(),
                 goes_on ? fusions_[layer_idx + 1].qkv[0].input : ActivationFormat::kF32,
                 outputs_alone ? NormRows::kOfOutputs : NormRows::kStep);
}

absl::Status StageRecorder::RecordPool() {
  const uint64_t normed = buffers_.normed.address();
  TANDEM_RETURN_IF_ERROR(Run(RmsNormLaunch(tuning_,
                                           {.step = step_,
                                            .source = buffers_.residual.address(),
                                            .weight = NormWeight(WeightRole::kFinalNorm),
                                            .destination = normed,
                                            .cols = config_.hidden_dim,
                                            .epsilon = config_.rms_norm_eps},
                                           false, context_.limits.max_rows)));
  return Run(PoolLaunch(
      tuning_,
      {.step = step_,
       .source = normed,
       .destination = context_.exchange->Address(lane_, context_.exchange->layout().pooled),
       .cols = config_.hidden_dim},
      context_.limits.max_sequences));
}

absl::Status StageRecorder::RecordHead(const HeadShape& shape, uint32_t first_output,
                                       uint32_t end) {
  const ExchangeLayout& layout = context_.exchange->layout();
  const DeviceTensor& head = context_.import->Find(context_.weights->head());
  const uint32_t tile = std::min(bucket_, context_.buffers->head_tile);
  const uint32_t logit_stride = LogitStride(config_.vocab_size);
  const Matmul matmul = ChooseMatmul(tuning_, head, false, false, tile);
  for (uint32_t first = first_output; first < end; first += tile) {
    TANDEM_RETURN_IF_ERROR(Run(RmsNormLaunch(tuning_,
                                             {.step = step_,
                                              .source = buffers_.residual.address(),
                                              .weight = NormWeight(WeightRole::kFinalNorm),
                                              .destination = buffers_.head_normed.address(),
                                              .cols = config_.hidden_dim,
                                              .epsilon = config_.rms_norm_eps,
                                              .first_row = first},
                                             true, tile, matmul.input)));
    TANDEM_RETURN_IF_ERROR(Multiply(matmul, head,
                                    {.count = step_ + kOutputCount,
                                     .x = buffers_.head_normed.address(),
                                     .destination = buffers_.logits.address(),
                                     .out_stride = logit_stride,
                                     .first_row = first,
                                     .max_rows = tile}));
    if (shape.with_logits) {
      TANDEM_RETURN_IF_ERROR(phases_.Record(
          CopyRowsLaunch(tuning_,
                         {.count = step_ + kOutputCount,
                          .source = buffers_.logits.address(),
                          .destination = context_.exchange->Address(lane_, layout.logits),
                          .cols = config_.vocab_size,
                          .source_stride = logit_stride,
                          .destination_stride = config_.vocab_size,
                          .first_row = first},
                         tile)));
    }
    for (const Launch& launch : HeadReduceLaunches(
             tuning_,
             {.step = step_,
             .logits = buffers_.logits.address(),
             .slices = buffers_.head_slices.address(),
             .results = context_.exchange->Address(lane_, layout.candidates),
             .sums = buffers_.head_sums.address(),
             .guesses = context_.buffers->guesses.address(),
             .guessed = context_.exchange->Address(lane_, layout.guesses),
             .masks = shape.masked ? context_.exchange->Address(lane_, layout.masks) : 0,
             .vocab_size = config_.vocab_size,
             .first_output = first},
             tile)) {
      TANDEM_RETURN_IF_ERROR(Run(launch));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gpu
