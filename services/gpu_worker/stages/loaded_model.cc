#include "services/gpu_worker/stages/loaded_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/stages/stage_timer.h"
#include "services/gpu_worker/stages/tuner.h"

namespace tandem::gpu {
namespace {

// Most drivers compile a new pipeline for longer than it is measured.
constexpr double kWallForDevice = 10;

std::vector<Stage> StagesOf(const ModelLoad& load) {
  std::vector<Stage> stages;
  for (const Segment& segment : load.segments) {
    for (uint32_t i = segment.first_ordinal; i <= segment.last_ordinal; ++i) {
      stages.push_back(StageAt(i, load.weights->config().num_layers));
    }
  }
  return stages;
}

// Every tensor the stages read, once; the next layer's input norm belongs to the layer's Ffn too
// where both run here, and is then there anyway.
std::vector<const PackedTensor*> TensorsOf(const WeightSet& weights,
                                           const std::vector<Stage>& stages) {
  std::set<const PackedTensor*> seen;
  std::vector<const PackedTensor*> tensors;
  for (const Stage& stage : stages) {
    for (const WeightRole role : RolesOfStage(stage.kind)) {
      if (stage.kind == StageKind::kHead && role != WeightRole::kFinalNorm) continue;
      const PackedTensor* tensor = weights.Find(role, stage.layer_idx);
      if (tensor != nullptr && seen.insert(tensor).second) tensors.push_back(tensor);
    }
    if (stage.kind == StageKind::kHead && seen.insert(&weights.head()).second) {
      tensors.push_back(&weights.head());
    }
  }
  return tensors;
}

absl::Status CheckTensor(const PackedTensor& tensor) {
  const bool is_norm = IsNorm(tensor.role);
  if (is_norm && tensor.shards.size() != 1) {
    return absl::FailedPreconditionError(absl::StrFormat("%s: expected one shard, manifest has %d",
                                                         tensor.Name(), tensor.shards.size()));
  }
  if (!is_norm && tensor.shape.cols % 32 != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: %d columns are no multiple of 32, the kernels' block", tensor.Name(),
                        tensor.shape.cols));
  }
  const DType first = tensor.shards[0].dtype;
  for (const Shard& shard : tensor.shards) {
    if (shard.dtype != first && tensor.role != WeightRole::kQkv) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: shards of %s and %s; the device takes them mixed for qkv alone", tensor.Name(),
          std::string(Traits(first).name), std::string(Traits(shard.dtype).name)));
    }
  }
  if (tensor.role != WeightRole::kGateUp) return absl::OkStatus();
  for (const Shard& shard : tensor.shards) {
    if (shard.first_row % 2 != 0) {
      return absl::FailedPreconditionError(
          absl::StrFormat("%s: a shard begins at row %d, between a gate and its up", tensor.Name(),
                          shard.first_row));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSupported(const ModelLoad& load, const Tuning& tuning) {
  const ModelConfig& config = load.weights->config();
  const std::vector<Stage> stages = StagesOf(load);
  for (const PackedTensor* tensor : TensorsOf(*load.weights, stages)) {
    TANDEM_RETURN_IF_ERROR(CheckTensor(*tensor));
  }
  if (config.hidden_dim % 4 != 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("hidden_dim %d is no multiple of 4", config.hidden_dim));
  }
  const bool has_heads = std::any_of(stages.begin(), stages.end(), [](const Stage& stage) {
    return stage.kind == StageKind::kQkv || stage.kind == StageKind::kAttend;
  });
  if (has_heads && (config.head_dim % 8 != 0 || config.head_dim > 256)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "head_dim %d: the attention kernels take multiples of 8 up to 256", config.head_dim));
  }
  if (load.limits.context_len > MaxContext(tuning)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("context of %d positions, the device's driver loops over at most %d",
                        load.limits.context_len, MaxContext(tuning)));
  }
  if (SlicesOf(config.vocab_size).length > kMaxHeadSlice) {
    return absl::FailedPreconditionError(
        absl::StrFormat("vocabulary of %d tokens, the head's kernel takes at most %d",
                        config.vocab_size, uint64_t{kMaxHeadSlice} * kMostHeadSlices));
  }
  if (config.hidden_dim > MaxHiddenDim(tuning)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("hidden_dim %d, the device's driver loops over at most %d",
                        config.hidden_dim, MaxHiddenDim(tuning)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadedModel::Create(
    const vulkan::Device& device, KernelSet& kernels, vulkan::Timeline& timeline, ModelLoad load,
    const TuneOptions& tune, absl::Duration longest_submission, const Progress& progress) {
  TANDEM_RETURN_IF_ERROR(CheckSupported(load, kernels.tuning()));
  std::unique_ptr<LoadedModel> model(new LoadedModel(kernels, timeline, std::move(load)));
  model->stages_ = StagesOf(model->load_);
  TANDEM_RETURN_IF_ERROR(model->Import(device, tune, progress));
  if (model->tuning_.measure) TANDEM_RETURN_IF_ERROR(model->Tune(device, tune, progress));
  LogInfo("tuning", {{"table", model->tuning_.description}});
  TANDEM_RETURN_IF_ERROR(model->MeasureStages(device, longest_submission, progress));
  TANDEM_RETURN_IF_ERROR(model->RecordSegments(device, progress));
  TANDEM_RETURN_IF_ERROR(model->WarmUp(progress));
  progress(1.0, "ready");
  return model;
}

absl::Status LoadedModel::Import(const vulkan::Device& device, const TuneOptions& tune,
                                 const Progress& progress) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<vulkan::Uploader> uploader,
                          vulkan::Uploader::Create(device, timeline_, kStagingBytes));
  const auto tensors = TensorsOf(*load_.weights, stages_);
  if (!tensors.empty()) {
    TANDEM_ASSIGN_OR_RETURN(weights_, WeightImport::Create(device, *uploader, load_.weights,
                                                           tensors, [&progress](double fraction) {
                                                             progress(0.4 * fraction,
                                                                      "importing weights");
                                                           }));
  }
  tuning_ = ChooseTuning(tune, device.info(), ShapesOf(tensors), kernels_.tuning());
  progress(0.4, "allocating buffers");
  TANDEM_ASSIGN_OR_RETURN(phases_, DependencyCounters::Create(device));
  TANDEM_ASSIGN_OR_RETURN(exchange_, ExchangeAccess::Create(device, load_.exchange));
  TANDEM_ASSIGN_OR_RETURN(
      buffers_,
      ModelBuffers::Create(
          device, *uploader,
          tuning_.measure ? WidestTuning(device.info(), kernels_.tuning()) : kernels_.tuning(),
          load_, stages_));
  TANDEM_ASSIGN_OR_RETURN(kv_copier_,
                          KvCopier::Create(device, kernels_, timeline_, *exchange_, buffers_->kv,
                                           KvCopyLayout(load_.weights->config(), load_.limits)));
  return absl::OkStatus();
}

RecordingContext LoadedModel::context() const {
  return {.kernels = &kernels_,
          .weights = load_.weights.get(),
          .import = weights_.get(),
          .buffers = buffers_.get(),
          .exchange = exchange_.get(),
          .phases = phases_.get(),
          .times = times_.has_value() ? &*times_ : nullptr,
          .limits = load_.limits,
          .kv = load_.kv,
          .port_dtype = load_.port_dtype};
}

absl::Status LoadedModel::Tune(const vulkan::Device& device, const TuneOptions& tune,
                               const Progress& progress) {
  const bool now = tune.mode == TuneMode::kNow;
  const absl::Duration device_time = now ? tune.now : tune.first_start;
  TuningTable table{.key = tuning_.key, .made_by = now ? "tandem tune" : "first start"};
  const RecordingContext recording = context();
  Tuner tuner(device, recording, load_.segments, timeline_);
  TANDEM_RETURN_IF_ERROR(tuner.Tune(
      {.device = device_time, .wall = kWallForDevice * device_time},
      [&progress](double fraction) { progress(0.4 + 0.1 * fraction, "measuring kernels"); },
      table));
  // Tuning may have chosen another kernel for tiles.
  const ModelConfig& config = load_.weights->config();
  if (buffers_->rules.tile_rows > 0) {
    buffers_->rules =
        TileRulesOf(kernels_.tuning(), config.num_heads, config.num_kv_heads, config.head_dim);
  }
  const std::string path = tune.folder + "/" + table.key.FileName();
  tuning_.description = "tuned: " + path;
  if (const absl::Status written = WriteTuningTable(tune.folder, table); !written.ok()) {
    LogWarning("tuning table not kept", {{"reason", std::string(written.message())}});
    tuning_.description = "tuned, and not kept: " + std::string(written.message());
  }
  return absl::OkStatus();
}

absl::Status LoadedModel::MeasureStages(const vulkan::Device& device, absl::Duration longest,
                                        const Progress& progress) {
  const double seconds = absl::ToDoubleSeconds(longest);
  const bool may_be_long = std::ranges::any_of(load_.segments, [&](const Segment& segment) {
    return MayTakeLonger(seconds / 2, segment, *load_.weights, load_.limits, buffers_->kv_bytes);
  });
  if (!may_be_long) return absl::OkStatus();
  progress(0.5, "measuring stages");
  TANDEM_ASSIGN_OR_RETURN(
      times_, gpu::MeasureStages(device, context(), load_.segments, timeline_, seconds));
  const auto found = times_->FindLongStage(Buckets(load_.limits.max_rows), buffers_->head_tile);
  if (!found.has_value()) return absl::OkStatus();
  const Stage stage = StageAt(found->ordinal, load_.weights->config().num_layers);
  const char* otherwise =
      stage.kind == StageKind::kAttend ? "a shorter --context" : "a smaller model";
  LogWarning("a stage alone is longer than a submission may take",
             {{"stage", std::string(StageKindName(stage.kind))},
              {"layer", stage.layer_idx},
              {"rows", found->rows},
              {"estimate_ms", {1e3 * found->seconds, 0}},
              {"longest_ms", {1e3 * seconds, 0}},
              {"remedy", found->fitting_rows > 0 ? absl::StrFormat("--max-rows %d, or %s",
                                                                   found->fitting_rows, otherwise)
                                                 : otherwise}});
  return absl::OkStatus();
}

absl::Status LoadedModel::RecordSegments(const vulkan::Device& device, const Progress& progress) {
  uint32_t most_stages = 0;
  for (const Segment& segment : load_.segments) {
    most_stages = std::max(most_stages, segment.last_ordinal - segment.first_ordinal + 1);
  }
  const uint32_t num_timestamps = SegmentProgram::MaxTimestamps(most_stages);
  ticks_.resize(num_timestamps);
  TANDEM_ASSIGN_OR_RETURN(
      timestamps_,
      vulkan::TimestampPool::Create(device, num_timestamps * load_.exchange->layout.num_lanes,
                                    device.info().query_reads_wait));
  TANDEM_ASSIGN_OR_RETURN(commands_, vulkan::CommandPool::Create(device));
  const RecordingContext recording = context();
  phases_->Clear();
  for (const Segment& segment : load_.segments) {
    TANDEM_ASSIGN_OR_RETURN(
        SegmentProgram program,
        SegmentProgram::Create(recording, segment, load_.exchange->layout.num_lanes, commands_,
                               timestamps_, num_timestamps));
    programs_.emplace(segment.index, std::move(program));
    progress(0.5 + 0.3 * static_cast<double>(programs_.size()) /
                       static_cast<double>(load_.segments.size()),
             "building pipelines");
  }
  LogCuts();
  return phases_->Begin(commands_, kernels_.layout(), timeline_);
}

void LoadedModel::LogCuts() const {
  const uint32_t most_rows = Buckets(load_.limits.max_rows).back();
  uint32_t of_one_row = 0, of_most_rows = 0;
  for (const auto& entry : programs_) {
    of_one_row += entry.second.NumBodyParts(1);
    of_most_rows += entry.second.NumBodyParts(most_rows);
  }
  if (of_most_rows == programs_.size() && of_one_row == programs_.size()) return;
  LogInfo("steps are cut into submissions", {{"segments", programs_.size()},
                                             {"submissions_of_one_row", of_one_row},
                                             {"submissions_of_most_rows", of_most_rows},
                                             {"most_rows", most_rows}});
}

absl::Status LoadedModel::WarmUp(const Progress& progress) {
  std::memset(buffers_->lanes[0].step.mapped().data(), 0, sizeof(StepHeader));
  std::ranges::fill(buffers_->lanes[0].attention_step.mapped(), std::byte{0});
  size_t done = 0;
  for (const auto& entry : programs_) {
    const SegmentProgram& program = entry.second;
    const auto run = [&, this](const StepShape& shape) -> absl::Status {
      TANDEM_ASSIGN_OR_RETURN(const uint64_t value, SubmitAll(program.For(0, shape, true)));
      return timeline_.Wait(value, StepTimeout(timeline_));
    };
    // Wider buckets use the kernels of these.
    const StepLimits& limits = load_.limits;
    const uint32_t most = std::min(kernels_.tuning().matmul_rows, std::bit_ceil(limits.max_rows));
    const uint32_t more = std::min(std::max(2 * most, kFewestSplitRows), limits.max_rows);
    for (uint32_t rows = 1; rows <= most; rows *= 2) {
      const uint32_t outputs = std::min(rows, limits.max_outputs);
      TANDEM_RETURN_IF_ERROR(run({.num_rows = rows, .num_outputs = outputs, .num_pooled = 1}));
      TANDEM_RETURN_IF_ERROR(run({.num_rows = more, .num_outputs = outputs}));
    }
    if (buffers_->decode_rows > 0) {
      const uint32_t chain_rows = std::min(kFewestChainRows, limits.max_rows);
      TANDEM_RETURN_IF_ERROR(run({.num_rows = chain_rows, .sequences = Sequences::kChains}));
      TANDEM_RETURN_IF_ERROR(run({.num_rows = limits.max_rows, .sequences = Sequences::kLong}));
    }
    progress(0.8 + 0.2 * static_cast<double>(++done) / static_cast<double>(programs_.size()),
             "warming up");
  }
  return absl::OkStatus();
}

LoadReport LoadedModel::report() const {
  LoadReport report;
  report.exchange_import = exchange_->path();
  report.tuning = tuning_.description;
  report.kv_bytes = buffers_->kv_bytes;
  if (weights_ != nullptr) {
    report.weight_import = weights_->path();
    report.weight_bytes = weights_->bytes();
    report.note = weights_->note();
  }
  if (!exchange_->note().empty()) {
    report.note += (report.note.empty() ? "" : "; ") + exchange_->note();
  }
  return report;
}

LoadedModel::~LoadedModel() {
  if (!flights_.empty()) timeline_.IsIdle(StepTimeout(timeline_));
}

absl::Status LoadedModel::Submit(const SegmentRun& run) {
  const auto it = programs_.find(run.segment_index);
  if (it == programs_.end()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("segment %d is not loaded here", run.segment_index));
  }
  if (run.lane >= load_.exchange->layout.num_lanes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("lane %d, there are %d", run.lane, load_.exchange->layout.num_lanes));
  }
  const SegmentProgram& program = it->second;
  Flight flight{.program = &program, .header = run.step->header, .lane = run.lane};
  if (run.first_of_step) WriteRows(run.lane, *run.step);
  exchange_->CopyIn(run.lane, program.segment().inputs, flight.header.num_rows);
  exchange_->CopyInSoftTokens(run.lane, run.step->pictures);
  const StepShape shape = StepShape::Of(*run.step, buffers_->rules);
  flight.shares = &shares_[{run.segment_index, BucketIndex(shape.num_rows), shape.sequences}];
  flight.whole = flight.shares->NextIsWhole();
  flight.submission = program.For(run.lane, shape, flight.whole);
  flight.awaits_masks = run.masks_follow && program.has_head() && flight.header.num_outputs > 0;
  if (program.has_head() && !flight.awaits_masks) exchange_->CopyInMasks(run.lane, flight.header);
  if (!shared_) {
    TANDEM_RETURN_IF_ERROR(QueueReady(flight));
    flights_.push_back(std::move(flight));
    return absl::OkStatus();
  }
  flights_.push_back(std::move(flight));
  QueueDue();
  if (flights_.back().failed.ok()) return absl::OkStatus();
  const absl::Status failed = flights_.back().failed;
  timeline_.IsIdle(StepTimeout(timeline_));  // what came before it still runs
  flights_.pop_back();
  return failed;
}

void LoadedModel::MasksReady() {
  if (flights_.empty() || !std::exchange(flights_.back().awaits_masks, false)) return;
  Flight& flight = flights_.back();
  exchange_->CopyInMasks(flight.lane, flight.header);
  if (shared_) return QueueDue();
  QueueReady(flight).IgnoreError();  // Wait returns it
}

absl::Status LoadedModel::QueueNext(Flight& flight) {
  std::array<VkCommandBuffer, SegmentProgram::Submission::kMostParts> together;
  size_t count = 0;
  const auto submit = [&]() -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(flight.done, timeline_.Submit(std::span(together).first(count)));
    return absl::OkStatus();
  };
  uint32_t& recording = flight.next_recording;
  for (; recording < flight.num_ready(); ++recording, flight.next_part = 0) {
    const SegmentProgram::Submission::Parts& parts = flight.submission.recordings[recording];
    for (; flight.next_part < parts.commands.size(); ++flight.next_part) {
      const bool joins = flight.next_part == 0 && parts.joins;
      if (count > 0 && !joins) return submit();
      together[count++] = parts.commands[flight.next_part];
    }
  }
  return submit();
}

void LoadedModel::QueueDue() {
  queued_.RemoveDone();
  for (Flight& flight : flights_) {
    while (queued_.HasRoom() && !flight.rests()) {
      flight.failed = QueueNext(flight);
      if (flight.failed.ok()) queued_.Push(flight.done);
    }
  }
}

absl::StatusOr<bool> LoadedModel::Advance() {
  if (!shared_ || OldestHasRun()) return true;
  TANDEM_RETURN_IF_ERROR(queued_.WaitForOldest());
  QueueDue();
  return OldestHasRun();
}

absl::Status LoadedModel::QueueReady(Flight& flight) {
  while (!flight.rests()) {
    flight.failed = QueueNext(flight);
    if (flight.failed.ok()) continue;
    // What came before it still runs, over memory that the caller may now free.
    if (flight.done != 0) timeline_.IsIdle(StepTimeout(timeline_));
  }
  return flight.failed;
}

absl::StatusOr<uint64_t> LoadedModel::SubmitAll(const SegmentProgram::Submission& submission) {
  Flight flight{.submission = submission};
  TANDEM_RETURN_IF_ERROR(QueueReady(flight));
  return flight.done;
}

absl::StatusOr<SegmentResult> LoadedModel::Wait() {
  absl::StatusOr<bool> has_run = false;
  while (has_run.ok() && !*has_run) has_run = Advance();
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  TANDEM_RETURN_IF_ERROR(has_run.status());
  TANDEM_RETURN_IF_ERROR(flight.failed);
  TANDEM_RETURN_IF_ERROR(timeline_.Wait(flight.done, StepTimeout(timeline_)));
  TANDEM_RETURN_IF_ERROR(phases_->Check(kernels_));
  exchange_->CopyOut(flight.lane, flight.program->segment().outputs, flight.header.num_rows);
  if (flight.program->has_head()) FinishResults(flight.lane, flight.header);
  return ReadTimes(flight);
}

void LoadedModel::WriteRows(uint32_t lane, const StepBatch& step) {
  const LaneBuffers& buffers = buffers_->lanes[lane];
  WriteStep(step, buffers.step.mapped());
  if (buffers_->decode_rows == 0) return;
  const AttentionStepLayout layout(load_.limits, buffers_->rules);
  WriteAttentionStep(step, layout, buffers.attention_step.mapped());
}

void LoadedModel::FinishResults(uint32_t lane, const StepHeader& header) {
  const auto sums = buffers_->lanes[lane].head_sums.mapped();
  const auto results = exchange_->HostView(lane, exchange_->layout().candidates);
  for (uint32_t o = 0; o < header.num_outputs; ++o) {
    float parts[2];  // highest logit, sum of exponentials about it
    std::memcpy(parts, sums.data() + o * sizeof(parts), sizeof(parts));
    const float log_sum_exp = parts[0] + std::log(parts[1]);
    std::memcpy(results.data() + o * sizeof(OutputResult) + offsetof(OutputResult, log_sum_exp),
                &log_sum_exp, sizeof(log_sum_exp));
  }
  exchange_->CopyOutResults(lane, header);
}

absl::StatusOr<SegmentResult> LoadedModel::ReadTimes(const Flight& flight) {
  const SegmentProgram::Submission& submission = flight.submission;
  StageShares& shares = *flight.shares;
  const std::span<uint64_t> ticks = std::span(ticks_).first(submission.num_timestamps);
  TANDEM_RETURN_IF_ERROR(timestamps_.Read(submission.first_timestamp, ticks));
  const size_t of_head = submission.masked_head ? 2 : submission.head ? 1 : 0;
  const uint64_t body_end = ticks[ticks.size() - 1 - of_head];
  const uint64_t body_ns = timestamps_.Nanoseconds(ticks[0], body_end);
  const std::vector<Stage>& stages = flight.program->body_stages();
  if (flight.whole) {
    StageShares::ByKind spent = {};
    for (size_t i = 0; i < stages.size(); ++i) {
      spent[static_cast<size_t>(stages[i].kind)] += timestamps_.Nanoseconds(ticks[i], ticks[i + 1]);
    }
    shares.Learn(spent);
  }
  SegmentResult result;
  result.device_ns = stages.empty() ? 0 : body_ns;
  StageShares::ByKind by_kind = shares.Share(result.device_ns);
  if (submission.head) {
    const uint64_t head_begin = submission.masked_head ? ticks.back() : body_end;
    const uint64_t head_ns = timestamps_.Nanoseconds(head_begin, ticks[ticks.size() - of_head]);
    by_kind[static_cast<size_t>(StageKind::kHead)] += head_ns;
    result.device_ns += head_ns;
  }
  for (size_t kind = 0; kind < by_kind.size(); ++kind) {
    if (by_kind[kind] != 0) {
      result.stage_times.push_back({static_cast<StageKind>(kind), by_kind[kind]});
    }
  }
  return result;
}

}  // namespace tandem::gpu
