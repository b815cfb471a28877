#include "services/gpu_worker/stages/tuner.h"

#include <algorithm>
#include <cmath>

#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/stages/timed_recording.h"
#include "services/gpu_worker/stages/tuning_step.h"

namespace tandem::gpu {
namespace {

constexpr uint64_t kWeightBytes = 256ull << 20;  // of a step: more than caches hold
constexpr double kNoise = 0.02;                  // what a value must be better by
constexpr TimedRuns kTuningRuns = {.least = 3, .most = 20, .run_for = absl::Milliseconds(15)};

// Layers, from the first, whose weights are kWeightBytes or all there are.
uint32_t LayersOfStep(const WeightSet& weights) {
  const uint32_t num_layers = weights.config().num_layers;
  std::vector<uint64_t> bytes(num_layers);
  for (const PackedTensor& tensor : weights.tensors()) {
    if (!IsPerLayer(tensor.role)) continue;
    for (const Shard& shard : tensor.shards) bytes[tensor.layer_idx] += ShardBytes(tensor, shard);
  }
  uint64_t sum = 0;
  for (uint32_t layer = 0; layer < num_layers; ++layer) {
    sum += bytes[layer];
    if (sum >= kWeightBytes) return layer + 1;
  }
  return num_layers;
}

}  // namespace

Tuning WidestTuning(const vulkan::DeviceInfo& info, const Tuning& tuning) {
  Tuning widest = tuning;
  for (const TuningSetting& setting : TuningSettings(info, tuning)) {
    if (setting.name != "matvec_max_rows") continue;  // rows of partial sums
    setting.of(widest) = *std::ranges::max_element(setting.values);
  }
  return widest;
}

Tuner::Tuner(const vulkan::Device& device, const RecordingContext& context,
             const std::vector<Segment>& segments, vulkan::Timeline& timeline)
    : device_(device),
      context_(context),
      segments_(segments),
      timeline_(timeline),
      tuning_(context.kernels->tuning()),
      num_layers_(LayersOfStep(*context.weights)) {}

bool Tuner::IsSpent() const {
  return device_spent_ >= budget_.device || absl::Now() - begun_ >= budget_.wall;
}

bool Tuner::CanRun(const TuningCase& tuning_case) const {
  if (!Fits(tuning_case, context_.limits)) return false;
  if (tuning_case.work == TuningWork::kLayers) return true;
  const StageKind wanted =
      tuning_case.work == TuningWork::kHead ? StageKind::kHead : StageKind::kAttend;
  const uint32_t num_layers = context_.weights->config().num_layers;
  for (const Segment& segment : segments_) {
    for (uint32_t i = segment.first_ordinal; i <= segment.last_ordinal; ++i) {
      if (StageAt(i, num_layers).kind == wanted) return true;
    }
  }
  return false;
}

absl::Status Tuner::RecordStep(const TuningCase& tuning_case, vulkan::Recorder& recorder) {
  const bool is_head = tuning_case.work == TuningWork::kHead;
  const bool is_layers = tuning_case.work == TuningWork::kLayers;
  const bool has_long = tuning_.decode.enabled && tuning_case.work != TuningWork::kDecode &&
                        tuning_case.rows >= kLongRows;
  const uint32_t num_layers = context_.weights->config().num_layers;
  for (const Segment& segment : segments_) {
    StageRecorder stages(context_, segment, 0, tuning_case.rows,
                         has_long ? Sequences::kLong : Sequences::kShort, recorder);
    if (is_layers) TANDEM_RETURN_IF_ERROR(stages.Begin());
    for (uint32_t i = segment.first_ordinal; i <= segment.last_ordinal; ++i) {
      const Stage stage = StageAt(i, num_layers);
      if (stage.kind == StageKind::kHead) {
        if (is_head) TANDEM_RETURN_IF_ERROR(stages.RecordHead({}, 0, tuning_case.rows));
        break;
      }
      if (is_layers && stage.layer_idx >= num_layers_) break;
      if (is_head || (!is_layers && stage.kind != StageKind::kAttend)) continue;
      TANDEM_RETURN_IF_ERROR(stages.Record(stage));
    }
    if (is_layers) TANDEM_RETURN_IF_ERROR(stages.Finish());
    stages.Close();
  }
  return absl::OkStatus();
}

absl::StatusOr<double> Tuner::Measure(const TuningCase& tuning_case) {
  WriteTuningStep(tuning_case, context_.limits, context_.buffers->rules,
                  context_.buffers->lanes[0]);
  TANDEM_ASSIGN_OR_RETURN(
      const RecordedTime time,
      TimeRecording(device_, context_, timeline_, kTuningRuns,
                    [&](vulkan::Recorder& recorder) { return RecordStep(tuning_case, recorder); }));
  device_spent_ += time.spent;
  return time.seconds;
}

absl::StatusOr<Tuner::Times> Tuner::Baseline(const std::vector<TuningCase>& cases) {
  Times times;
  for (const TuningCase& tuning_case : cases) {
    if (!baseline_.contains(tuning_case)) {
      TANDEM_ASSIGN_OR_RETURN(baseline_[tuning_case], Measure(tuning_case));
    }
    times[tuning_case] = baseline_[tuning_case];
  }
  return times;
}

absl::Status Tuner::Try(const TuningSetting& setting, TuningTable& table) {
  TuningTrial trial{.setting = setting.name};
  std::vector<TuningCase> cases;
  for (const TuningCase& tuning_case : setting.cases) {
    if (!CanRun(tuning_case)) continue;
    cases.push_back(tuning_case);
    trial.cases.push_back(tuning_case.Name());
  }
  if (cases.empty()) return absl::OkStatus();
  TANDEM_ASSIGN_OR_RETURN(const Times before, Baseline(cases));
  uint32_t& value = setting.of(tuning_);
  const uint32_t kept = value;
  trial.chosen = kept;
  trial.time[kept] = 1;
  double best = 1 - kNoise;
  Times best_times;
  for (const uint32_t candidate : setting.values) {
    if (candidate == kept || IsSpent()) continue;
    value = candidate;
    double logarithms = 0;
    Times times;
    absl::Status status;
    for (const TuningCase& tuning_case : cases) {
      const absl::StatusOr<double> time = Measure(tuning_case);
      status = time.status();
      if (!status.ok()) break;
      times[tuning_case] = *time;
      logarithms += std::log(*time / before.at(tuning_case));
    }
    if (device_.lost()) return status;
    if (!status.ok()) continue;  // a shape that this driver does not take
    const double relative = std::exp(logarithms / static_cast<double>(cases.size()));
    trial.time[candidate] = relative;
    if (relative >= best) continue;
    best = relative;
    trial.chosen = candidate;
    best_times = std::move(times);
  }
  value = trial.chosen;
  if (trial.chosen != kept) baseline_ = std::move(best_times);
  if (trial.time.size() == 1) return absl::OkStatus();  // the time was up
  table.settings[setting.name] = trial.chosen;
  table.trials.push_back(std::move(trial));
  return absl::OkStatus();
}

absl::Status Tuner::Tune(const TuneBudget& budget, absl::FunctionRef<void(double)> progress,
                         TuningTable& table) {
  budget_ = budget;
  begun_ = absl::Now();
  const std::vector<TuningSetting> settings = TuningSettings(device_.info(), tuning_);
  for (size_t i = 0; i < settings.size() && !IsSpent(); ++i) {
    progress(static_cast<double>(i) / static_cast<double>(settings.size()));
    TANDEM_RETURN_IF_ERROR(Try(settings[i], table));
  }
  return absl::OkStatus();
}

}  // namespace tandem::gpu
