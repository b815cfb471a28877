#include "services/gpu_worker/stages/stage_recorder.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/stages/attention_recorder.h"

namespace tandem::gpu {
namespace {

// Most rows of a step that uses dependency counters.  With more rows most matmuls run in kernels
// that have none.
constexpr uint32_t kMostCountedRows = 4;

constexpr uint64_t kRowCount = offsetof(StepHeader, num_rows);
constexpr uint64_t kOutputCount = offsetof(StepHeader, num_outputs);

// The AddNorm of `push`, computed by the matmul that reads its output.
InputNorm MakeInputNorm(const AddNormPush& push, uint32_t split_k) {
  return {.split_k = split_k,
          .weight = push.weight,
          .next_weight = push.next_weight,
          .residual = push.residual,
          .updated = push.updated,
          .epsilon = push.epsilon};
}

}  // namespace

StageRecorder::StageRecorder(const RecordingContext& context, const Segment& segment, uint32_t lane,
                             uint32_t bucket, bool long_sequences, vulkan::Recorder& recorder)
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
                                                     long_sequences, phases_)) {}

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

Matmul StageRecorder::OutMatmul(uint32_t layer_idx) const {
  const uint32_t attend = StageOrdinal({StageKind::kAttend, layer_idx}, config_.num_layers);
  const bool attends = segment_.first_ordinal <= attend;
  const bool projects = segment_.last_ordinal > attend;
  if (!projects) return {.input = ActivationFormat::kF16};
  Matmul matmul = ChooseMatmul(tuning_, Weight(WeightRole::kOut, layer_idx), false,
                               AddsSplitK(tuning_, config_.hidden_dim), bucket_);
  const bool blocks =
      matmul.input == ActivationFormat::kInt8 && attends && attention_->CanWriteBlocks();
  if (!blocks) TakeAttention(matmul);
  return matmul;
}

absl::Status StageRecorder::AddNorm(AddNormPush push, uint32_t split_k, ActivationFormat format,
                                    NormRows rows) {
  push.slice_stride = bucket_ * config_.hidden_dim;
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
      return attention_->Attend(stage.layer_idx, OutMatmul(stage.layer_idx).input);
    case StageKind::kOut:
      return Out(stage.layer_idx);
    case StageKind::kFfn:
      return Ffn(stage.layer_idx, /*outputs_alone=*/false);
    case StageKind::kHead:
      break;
  }
  return absl::InternalError("Head is recorded by itself");
}

absl::Status StageRecorder::Embed() {
  const DeviceTensor& table = Weight(WeightRole::kEmbedding);
  for (const DeviceShard& shard : table.shards) {
    TANDEM_RETURN_IF_ERROR(phases_.Record(
        EmbedLaunch(tuning_, table, shard, step_, context_.buffers->guesses.address(),
                    buffers_.residual.address(), config_.embedding_scale, bucket_)));
  }
  phases_.Next();
  return absl::OkStatus();
}

absl::Status StageRecorder::Qkv(uint32_t layer_idx) {
  const std::span<const DeviceTensor> parts = QkvWeights(layer_idx);
  const std::vector<Matmul> matmuls = ChooseMatmuls(tuning_, parts, bucket_);
  MatmulArgs args = {.count = step_ + kRowCount,
                     .x = buffers_.normed.address(),
                     .destination = buffers_.qkv.address(),
                     .out_stride = config_.qkv_dim(),
                     .max_rows = bucket_};
  if (input_norm_.has_value()) {
    args.x = buffers_.projection.address();
    args.norm = std::exchange(input_norm_, std::nullopt);
  } else if (!normed_) {
    TANDEM_RETURN_IF_ERROR(
        Run(RmsNormLaunch(tuning_,
                          {.step = step_,
                           .source = buffers_.residual.address(),
                           .weight = NormWeight(WeightRole::kInputNorm, layer_idx),
                           .destination = buffers_.normed.address(),
                           .cols = config_.hidden_dim,
                           .epsilon = config_.rms_norm_eps},
                          false, bucket_, matmuls[0].input)));
  }
  normed_ = false;
  TANDEM_RETURN_IF_ERROR(Multiply(matmuls, parts, args));
  return attention_->Qkv(layer_idx);
}

absl::Status StageRecorder::Out(uint32_t layer_idx) {
  const uint32_t ordinal = StageOrdinal({StageKind::kOut, layer_idx}, config_.num_layers);
  const DeviceTensor& weights = Weight(WeightRole::kOut, layer_idx);
  const Matmul matmul = OutMatmul(layer_idx);
  // Partial sums stay on this worker.  Another worker gets their sum, with the same bits as the
  // norm's.
  const uint64_t destination = places_.WrittenAt(Port::kProjection, ordinal);
  const uint64_t split = buffers_.projection.address();
  projection_split_k_ = matmul.split_k();
  const bool adds = projection_split_k_ > 1 && destination != split;
  const uint32_t slice_stride = bucket_ * config_.hidden_dim;
  TANDEM_RETURN_IF_ERROR(Multiply(matmul, weights,
                                  {.count = step_ + kRowCount,
                                   .x = places_.ReadAt(Port::kAttention, ordinal),
                                   .destination = adds ? split : destination,
                                   .out_stride = config_.hidden_dim,
                                   .slice_stride = slice_stride,
                                   .max_rows = bucket_}));
  if (!adds) return absl::OkStatus();
  return Run(AddSplitKLaunch(tuning_,
                             {.count = step_ + kRowCount,
                              .source = split,
                              .destination = destination,
                              .cols = config_.hidden_dim,
                              .slice_stride = slice_stride},
                             std::exchange(projection_split_k_, 1), bucket_));
}

bool StageRecorder::CanLeaveLastFfn() const {
  const uint32_t layer_idx = config_.num_layers - 1;
  const uint32_t head = NumStages(config_.num_layers) - 1, out = head - 2;
  if (segment_.last_ordinal != head || segment_.first_ordinal > head - 1) return false;
  return segment_.first_ordinal > out || OutMatmul(layer_idx).split_k() == 1;
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
  const Matmul activate = ChooseMatmul(tuning_, gate_up, true, false, bucket_);
  Matmul project =
      ChooseMatmul(tuning_, down, false, AddsSplitK(tuning_, config_.hidden_dim), bucket_);
  MatchGeglu(activate, gate_up, project);
  const uint64_t count = step_ + (outputs_alone ? kOutputCount : kRowCount);
  MatmulArgs args = {.count = count,
                     .x = buffers_.normed.address(),
                     .destination = buffers_.activated.address(),
                     .out_stride = config_.ffn_dim,
                     .geglu = true,
                     .out_format = project.input,
                     .max_rows = bucket_};
  const bool takes_norm = !outputs_alone && TakesInputNorm(tuning_, activate, gate_up, bucket_);
  if (takes_norm) {
    // One workgroup writes what all read, so it goes to another place.
    norm.updated = buffers_.updated.address();
    args.x = norm.source;
    args.norm = MakeInputNorm(norm, projection_split_k_);
    std::swap(norm.residual, norm.updated);
  } else {
    TANDEM_RETURN_IF_ERROR(AddNorm(norm, projection_split_k_, activate.input,
                                   outputs_alone ? NormRows::kGathered : NormRows::kStep));
  }
  projection_split_k_ = 1;
  TANDEM_RETURN_IF_ERROR(Multiply(activate, gate_up, args));
  TANDEM_RETURN_IF_ERROR(Multiply(project, down,
                                  {.count = count,
                                   .x = buffers_.activated.address(),
                                   .destination = buffers_.projection.address(),
                                   .out_stride = config_.hidden_dim,
                                   .slice_stride = bucket_ * config_.hidden_dim,
                                   .max_rows = bucket_}));
  // The next layer's input norm goes along where it runs here.
  const bool goes_on = layer_idx + 1 < config_.num_layers && segment_.last_ordinal > ordinal;
  const NormRows rows = outputs_alone ? NormRows::kOfOutputs : NormRows::kStep;
  norm.source = buffers_.projection.address();
  norm.weight = NormWeight(WeightRole::kPostFfnNorm, layer_idx);
  norm.next_weight = goes_on ? NormWeight(WeightRole::kInputNorm, layer_idx + 1) : 0;
  if (!goes_on) return AddNorm(norm, project.split_k(), ActivationFormat::kF32, rows);
  const std::span<const DeviceTensor> parts = QkvWeights(layer_idx + 1);
  const std::vector<Matmul> next = ChooseMatmuls(tuning_, parts, bucket_);
  bool next_takes_norm = takes_norm;
  for (size_t i = 0; i < parts.size(); ++i) {
    next_takes_norm = next_takes_norm && TakesInputNorm(tuning_, next[i], parts[i], bucket_);
  }
  if (next_takes_norm) {
    input_norm_ = MakeInputNorm(norm, project.split_k());
    return absl::OkStatus();
  }
  normed_ = true;
  return AddNorm(norm, project.split_k(), next[0].input);
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

absl::Status StageRecorder::RecordHead(bool with_logits) {
  const ExchangeLayout& layout = context_.exchange->layout();
  const DeviceTensor& head = context_.import->Find(context_.weights->head());
  const uint32_t tile = std::min(bucket_, context_.buffers->head_tile);
  const uint32_t logit_stride = LogitStride(config_.vocab_size);
  const Matmul matmul = ChooseMatmul(tuning_, head, false, false, tile);
  for (uint32_t first = 0; first < bucket_; first += tile) {
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
    if (with_logits) {
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
    for (const Launch& launch :
         HeadReduceLaunches(tuning_,
                            {.step = step_,
                            .logits = buffers_.logits.address(),
                            .slices = buffers_.head_slices.address(),
                            .results = context_.exchange->Address(lane_, layout.candidates),
                            .sums = buffers_.head_sums.address(),
                            .guesses = context_.buffers->guesses.address(),
                            .guessed = context_.exchange->Address(lane_, layout.guesses),
                            .vocab_size = config_.vocab_size,
                            .first_output = first},
                            tile)) {
      TANDEM_RETURN_IF_ERROR(Run(launch));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::gpu
