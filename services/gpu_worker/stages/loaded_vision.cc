#include "services/gpu_worker/stages/loaded_vision.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem::gpu {
namespace {

constexpr uint32_t kTimestamps = 2;  // of a part: its begin and its end

// What kernels read from the loader's regions: all but what VisionBuffers makes copies of.
std::vector<const PackedTensor*> VisionTensorsOf(const WeightSet& weights) {
  std::vector<const PackedTensor*> tensors;
  for (const PackedTensor& tensor : weights.vision_tensors()) {
    const VisionRole role = ToVisionRole(tensor.role);
    if (role == VisionRole::kPositions || role == VisionRole::kProjection) continue;
    tensors.push_back(&tensor);
  }
  return tensors;
}

}  // namespace

absl::Status CheckVisionSupported(const WeightSet& weights, const Tuning& tuning) {
  const VisionConfig& config = *weights.config().vision;
  const auto refuse = [](const char* what, uint32_t value, uint32_t factor) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "Vision: %s %d is no multiple of %d, the kernels' block", what, value, factor));
  };
  if (config.hidden_dim % kBlockColumns != 0) {
    return refuse("hidden_dim", config.hidden_dim, kBlockColumns);
  }
  if (config.ffn_dim % 4 != 0) return refuse("ffn_dim", config.ffn_dim, 4);
  if (config.head_dim() % 8 != 0) return refuse("head_dim", config.head_dim(), 8);
  if (config.head_dim() > 256) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "Vision: head_dim %d, the attention kernels take at most 256", config.head_dim()));
  }
  if (config.num_patches() > MaxContext(tuning) || config.hidden_dim > MaxHiddenDim(tuning)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "Vision: %d patches of %d, the device's driver loops over at most %d of %d",
        config.num_patches(), config.hidden_dim, MaxContext(tuning), MaxHiddenDim(tuning)));
  }
  for (const PackedTensor& tensor : weights.vision_tensors()) {
    const DType first = tensor.shards[0].dtype;
    if (std::ranges::all_of(tensor.shards, [&](const Shard& s) { return s.dtype == first; })) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: shards of several formats; the device takes them mixed for qkv alone", tensor.Name()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoadedVision>> LoadedVision::Create(
    const vulkan::Device& device, KernelSet& kernels, vulkan::Timeline& timeline, ModelLoad load,
    const LoadedModel::Progress& progress) {
  TANDEM_RETURN_IF_ERROR(CheckVisionSupported(*load.weights, kernels.tuning()));
  std::unique_ptr<LoadedVision> vision(
      new LoadedVision(device, kernels, timeline, std::move(load)));
  TANDEM_RETURN_IF_ERROR(vision->Import(progress));
  TANDEM_RETURN_IF_ERROR(vision->RecordPictures(progress));
  progress(0.9, "measuring a layer");
  TANDEM_RETURN_IF_ERROR(vision->MeasureLayer());
  progress(1.0, "ready");
  return vision;
}

absl::Status LoadedVision::Import(const LoadedModel::Progress& progress) {
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<vulkan::Uploader> uploader,
                          vulkan::Uploader::Create(device_, timeline_, kStagingBytes));
  const std::vector<const PackedTensor*> tensors = VisionTensorsOf(*load_.weights);
  const bool on_units = std::ranges::all_of(tensors, [this](const PackedTensor* tensor) {
    return IsNorm(tensor->role) ||
           UsesMatrixUnits(kernels_.tuning(), tensor->shards[0].dtype, config().num_patches());
  });
  format_ = on_units ? ActivationFormat::kF16 : ActivationFormat::kF32;
  TANDEM_ASSIGN_OR_RETURN(
      weights_, WeightImport::Create(
                    device_, *uploader, load_.weights, tensors, [&progress](double fraction) {
                      progress(0.5 * fraction, "importing the vision encoder's weights");
                    }));
  progress(0.5, "allocating buffers");
  TANDEM_ASSIGN_OR_RETURN(exchange_, ExchangeAccess::Create(device_, load_.exchange));
  TANDEM_ASSIGN_OR_RETURN(buffers_, VisionBuffers::Create(device_, *uploader, kernels_.tuning(),
                                                          *load_.weights, format_));
  return absl::OkStatus();
}

absl::Status LoadedVision::RecordPictures(const LoadedModel::Progress& progress) {
  const uint32_t num_lanes = load_.exchange->layout.num_lanes;
  const uint32_t num_parts = FirstPart(num_lanes, 0);
  TANDEM_ASSIGN_OR_RETURN(timestamps_,
                          vulkan::TimestampPool::Create(device_, num_parts * kTimestamps,
                                                        device_.info().query_reads_wait));
  TANDEM_ASSIGN_OR_RETURN(commands_, vulkan::CommandPool::Create(device_));
  ticks_.resize(uint64_t{FirstPart(1, 0)} * kTimestamps);
  const VisionContext context = {.kernels = &kernels_,
                                 .weights = load_.weights.get(),
                                 .import = weights_.get(),
                                 .buffers = buffers_.get(),
                                 .exchange = exchange_.get(),
                                 .format = format_};
  for (uint32_t lane = 0; lane < num_lanes; ++lane) {
    for (uint32_t picture = 0; picture < load_.limits.max_pictures; ++picture) {
      for (uint32_t part = 0; part < parts_of_picture(); ++part) {
        TANDEM_ASSIGN_OR_RETURN(parts_.emplace_back(), RecordPart(context, lane, picture, part));
      }
      progress(0.5 + 0.4 * static_cast<double>(parts_.size()) / num_parts, "building pipelines");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<VkCommandBuffer> LoadedVision::RecordPart(const VisionContext& context,
                                                         uint32_t lane, uint32_t picture,
                                                         uint32_t part) {
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(commands_, kernels_.layout()));
  const uint32_t first = (FirstPart(lane, picture) + part) * kTimestamps;
  // What was submitted before is written, and what it read may be written.
  recorder.TransferBarrier();
  recorder.ResetTimestamps(timestamps_.handle(), first, kTimestamps);
  recorder.WriteTimestamp(timestamps_.handle(), first);
  VisionRecorder stage(context, recorder);
  if (part == 0) {
    TANDEM_RETURN_IF_ERROR(stage.Begin(lane, picture));
  } else if (part + 1 < parts_of_picture()) {
    TANDEM_RETURN_IF_ERROR(stage.Layer(part - 1));
  } else {
    TANDEM_RETURN_IF_ERROR(stage.Finish(lane, picture));
  }
  recorder.WriteTimestamp(timestamps_.handle(), first + 1);
  recorder.CopyTimestamps(timestamps_, first, kTimestamps);
  recorder.HostBarrier();
  return recorder.End();
}

absl::Status LoadedVision::MeasureLayer() {
  // The first run may compile, and a device that was idle runs slowly for a while.
  constexpr int kRuns = 4;
  constexpr absl::Duration kLongEnough = absl::Milliseconds(100);
  const uint32_t layer = FirstPart(0, 0) + 1;
  uint64_t ns = std::numeric_limits<uint64_t>::max();
  const absl::Time end = absl::Now() + kLongEnough;
  for (int run = 0; run < 2 || (run < kRuns && absl::Now() < end); ++run) {
    TANDEM_RETURN_IF_ERROR(timeline_.SubmitAndWait({&parts_[layer], 1}, StepTimeout(timeline_)));
    TANDEM_ASSIGN_OR_RETURN(const uint64_t of_run, DeviceTime(layer, 1));
    ns = std::min(ns, of_run);
  }
  const double seconds = std::max(1e-9, 1e-9 * static_cast<double>(ns));
  parts_of_submission_ = static_cast<uint32_t>(
      std::clamp(kSubmissionSeconds / seconds, 1.0, double{vulkan::Timeline::kMostCommands}));
  LogInfo("vision", {{"layer_ms", {1e3 * seconds, 3}},
                     {"layers_of_submission", parts_of_submission_},
                     {"matrix_units", format_ == ActivationFormat::kF16}});
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> LoadedVision::DeviceTime(uint32_t first_part, uint32_t num_parts) {
  const std::span<uint64_t> ticks = std::span(ticks_).first(size_t{num_parts} * kTimestamps);
  TANDEM_RETURN_IF_ERROR(timestamps_.Read(first_part * kTimestamps, ticks));
  uint64_t ns = 0;
  for (size_t i = 0; i < ticks.size(); i += kTimestamps) {
    ns += timestamps_.Nanoseconds(ticks[i], ticks[i + 1]);
  }
  return ns;
}

LoadReport LoadedVision::report() const {
  return {.weight_import = weights_->path(),
          .exchange_import = exchange_->path(),
          .weight_bytes = weights_->bytes(),
          .note = weights_->note().empty() ? exchange_->note() : weights_->note()};
}

LoadedVision::~LoadedVision() {
  if (!flights_.empty()) timeline_.IsIdle(StepTimeout(timeline_));
}

absl::Status LoadedVision::Submit(const SegmentRun& run) {
  if (run.segment_index != load_.segments[0].index || run.lane >= exchange_->layout().num_lanes) {
    return absl::InvalidArgumentError(absl::StrFormat("Vision: segment %d, lane %d of %d",
                                                      run.segment_index, run.lane,
                                                      exchange_->layout().num_lanes));
  }
  const uint32_t num_pictures = run.step->header.num_pictures;
  exchange_->CopyInPixels(run.lane, num_pictures);
  flights_.push_back({.lane = run.lane,
                      .num_pictures = num_pictures,
                      .num_parts = num_pictures * parts_of_picture()});
  QueueDue();
  if (flights_.back().failed.ok()) return absl::OkStatus();
  const absl::Status failed = flights_.back().failed;
  timeline_.IsIdle(StepTimeout(timeline_));  // what came before it still runs
  flights_.pop_back();
  return failed;
}

void LoadedVision::QueueDue() {
  queued_.RemoveDone();
  for (Flight& flight : flights_) {
    const uint32_t first = FirstPart(flight.lane, 0);
    while (queued_.HasRoom() && !flight.all_queued()) {
      const uint32_t count = std::min(parts_of_submission_, flight.num_parts - flight.next);
      const absl::StatusOr<uint64_t> done =
          timeline_.Submit(std::span(parts_).subspan(first + flight.next, count));
      if (!done.ok()) {
        flight.failed = done.status();
        break;
      }
      flight.next += count;
      flight.done = *done;
      queued_.Push(*done);
    }
  }
}

absl::StatusOr<bool> LoadedVision::Advance() {
  if (OldestHasRun()) return true;
  TANDEM_RETURN_IF_ERROR(queued_.WaitForOldest());
  QueueDue();
  return OldestHasRun();
}

absl::StatusOr<SegmentResult> LoadedVision::Wait() {
  absl::StatusOr<bool> has_run = false;
  while (has_run.ok() && !*has_run) has_run = Advance();
  const Flight flight = flights_.front();
  flights_.pop_front();
  TANDEM_RETURN_IF_ERROR(has_run.status());
  TANDEM_RETURN_IF_ERROR(flight.failed);
  // Submissions that QueueDue saw at their end were not waited for, and may have been lost.
  TANDEM_RETURN_IF_ERROR(timeline_.Wait(flight.done, StepTimeout(timeline_)));
  exchange_->CopyOutSoftTokens(flight.lane, flight.num_pictures * load_.limits.picture_rows);
  TANDEM_ASSIGN_OR_RETURN(const uint64_t ns,
                          DeviceTime(FirstPart(flight.lane, 0), flight.num_parts));
  return SegmentResult{.device_ns = ns, .stage_times = {{StageKind::kVision, ns}}};
}

}  // namespace tandem::gpu
