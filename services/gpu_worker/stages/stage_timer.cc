#include "services/gpu_worker/stages/stage_timer.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/stages/timed_recording.h"
#include "services/gpu_worker/stages/tuning_step.h"

namespace tandem::gpu {
namespace {

constexpr TimedRuns kStageRuns = {.least = 2, .most = 2};

class StageTimer {
 public:
  StageTimer(const vulkan::Device& device, const RecordingContext& context,
             vulkan::Timeline& timeline, double longest_seconds)
      : device_(device),
        context_(context),
        config_(context.weights->config()),
        limits_(context.limits),
        timeline_(timeline),
        longest_(longest_seconds) {}

  // Stages with the same key take the same time.
  using Key = std::tuple<StageKind, uint64_t, bool>;  // bytes of weights, whether it sees all
  Key KeyOf(const Stage& stage) const {
    uint64_t bytes = 0;
    const auto add = [&bytes](const PackedTensor* tensor) {
      if (tensor == nullptr) return;
      for (const Shard& shard : tensor->shards) bytes += ShardBytes(*tensor, shard);
    };
    for (const WeightRole role : RolesOfStage(stage.kind)) {
      add(context_.weights->Find(role, stage.layer_idx));
    }
    const bool attends = stage.kind == StageKind::kAttend;
    return {stage.kind, bytes, attends && config_.is_global(stage.layer_idx)};
  }

  absl::StatusOr<SecondsByRows> Measure(const Segment& segment, const Stage& stage) {
    const bool is_head = stage.kind == StageKind::kHead;
    const uint32_t most = std::bit_ceil(is_head ? limits_.max_outputs : limits_.max_rows);
    std::map<TuningWork, SecondsByRows> timed;  // by the rows of the cases, not of the bucket
    SecondsByRows measured;
    for (uint32_t bucket = 1; bucket <= most; bucket *= 2) {
      for (const TuningCase& tuning_case : CasesOf(stage, bucket)) {
        SecondsByRows& times = timed[tuning_case.work];
        double seconds = times.empty() ? 0 : SecondsAt(times, tuning_case.rows);
        if (seconds <= longest_) {
          TANDEM_ASSIGN_OR_RETURN(seconds, Time(segment, stage, bucket, tuning_case));
          times[tuning_case.rows] = seconds;
        }
        measured[bucket] = std::max(measured[bucket], seconds);
      }
    }
    return measured;
  }

 private:
  // The steps of a row bucket that can take longest.
  std::vector<TuningCase> CasesOf(const Stage& stage, uint32_t bucket) const {
    if (stage.kind == StageKind::kHead) return {{TuningWork::kHead, bucket}};
    if (stage.kind != StageKind::kAttend) return {{TuningWork::kLayers, bucket}};
    const uint32_t rows = std::min({bucket, limits_.max_rows, limits_.context_len});
    const uint32_t sequences = std::min(bucket, limits_.max_sequences);
    // As many blocks as there are, and as the step's tables hold.
    const uint32_t blocks = std::min(limits_.num_blocks[kGlobalGroup] / sequences,
                                     limits_.max_table_len / (kNumKvGroups * sequences));
    const uint64_t positions = uint64_t{std::max(blocks, 1u)} * limits_.block_tokens;
    const auto depth = static_cast<uint32_t>(std::min<uint64_t>(limits_.context_len, positions));
    std::vector<TuningCase> cases = {{TuningWork::kDecode, sequences, depth - 1},
                                     {TuningWork::kPrompt, rows, limits_.context_len - rows}};
    std::erase_if(cases, [this](const TuningCase& of) { return !Fits(of, limits_); });
    return cases;
  }

  absl::StatusOr<double> Time(const Segment& segment, const Stage& stage, uint32_t bucket,
                              const TuningCase& tuning_case) {
    WriteTuningStep(tuning_case, limits_, context_.buffers->rules, context_.buffers->lanes[0]);
    const bool has_long = context_.kernels->tuning().decode.enabled &&
                          tuning_case.work == TuningWork::kPrompt && tuning_case.rows >= kLongRows;
    TANDEM_ASSIGN_OR_RETURN(
        const RecordedTime time,
        TimeRecording(device_, context_, timeline_, kStageRuns, [&](vulkan::Recorder& recorder) {
          StageRecorder stages(context_, segment, 0, bucket,
                               has_long ? Sequences::kLong : Sequences::kShort, recorder);
          TANDEM_RETURN_IF_ERROR(stage.kind == StageKind::kHead ? stages.RecordHead({}, 0, bucket)
                                                                : stages.Record(stage));
          stages.Close();
          return absl::OkStatus();
        }));
    return time.seconds;
  }

  const vulkan::Device& device_;     // Borrowed.
  const RecordingContext& context_;  // Borrowed.
  const ModelConfig& config_;
  const StepLimits& limits_;
  vulkan::Timeline& timeline_;  // Borrowed.
  const double longest_;
};

}  // namespace

absl::StatusOr<StageTimes> MeasureStages(const vulkan::Device& device,
                                         const RecordingContext& context,
                                         const std::vector<Segment>& segments,
                                         vulkan::Timeline& timeline, double longest_seconds) {
  const uint32_t num_layers = context.weights->config().num_layers;
  StageTimes times(longest_seconds, NumStages(num_layers));
  StageTimer timer(device, context, timeline, longest_seconds);
  std::map<StageTimer::Key, SecondsByRows> measured;
  for (const Segment& segment : segments) {
    for (uint32_t ordinal = segment.first_ordinal; ordinal <= segment.last_ordinal; ++ordinal) {
      const Stage stage = StageAt(ordinal, num_layers);
      const auto [place, is_new] = measured.try_emplace(timer.KeyOf(stage));
      if (is_new) {
        TANDEM_ASSIGN_OR_RETURN(place->second, timer.Measure(segment, stage));
      }
      times.Set(ordinal, place->second);
    }
  }
  return times;
}

}  // namespace tandem::gpu
