#include "services/gpu_worker/stages/segment_program.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/stages/attention_recorder.h"

namespace tandem::gpu {
namespace {

constexpr int kShort = static_cast<int>(Sequences::kShort),
              kChains = static_cast<int>(Sequences::kChains),
              kLong = static_cast<int>(Sequences::kLong);

}  // namespace

StepShape StepShape::Of(const StepBatch& step, const TileRules& rules) {
  const bool rise = std::ranges::adjacent_find(step.outputs, std::ranges::greater_equal(),
                                               &OutputEntry::row) == step.outputs.end();
  return {
      .num_rows = step.header.num_rows,
      .num_outputs = step.header.num_outputs,
      .num_pooled = step.header.num_pooled,
      .head = {.with_logits = step.header.want_logits != 0, .masked = step.header.num_masks > 0},
      .sequences = SequencesOf(step, rules),
      .outputs_rise = rise};
}

std::vector<uint32_t> Buckets(uint32_t max) {
  std::vector<uint32_t> buckets = {1};
  while (buckets.back() < max) buckets.push_back(2 * buckets.back());
  return buckets;
}

absl::StatusOr<SegmentProgram> SegmentProgram::Create(const RecordingContext& context,
                                                      const Segment& segment, uint32_t num_lanes,
                                                      const vulkan::CommandPool& pool,
                                                      const vulkan::TimestampPool& timestamps,
                                                      uint32_t timestamps_per_lane) {
  SegmentProgram program;
  program.segment_ = segment;
  program.timestamps_per_lane_ = timestamps_per_lane;
  if (context.times != nullptr) program.budget_ = context.times->budget();
  const uint32_t num_layers = context.weights->config().num_layers;
  for (uint32_t i = segment.first_ordinal; i <= segment.last_ordinal; ++i) {
    const Stage stage = StageAt(i, num_layers);
    if (stage.kind == StageKind::kHead) {
      program.has_head_ = true;
    } else {
      program.body_stages_.push_back(stage);
    }
  }
  program.splits_.resize(Buckets(context.limits.max_rows).size());
  for (uint32_t l = 0; l < num_lanes; ++l) {
    Lane& lane = program.lanes_.emplace_back();
    for (const uint32_t bucket : Buckets(context.limits.max_rows)) {
      for (const bool every_stage : {false, true}) {
        const auto record = [&](Sequences sequences) {
          return program.RecordBody(context, l, bucket, sequences, every_stage, pool, timestamps);
        };
        TANDEM_ASSIGN_OR_RETURN(Recording body, record(Sequences::kShort));
        lane.bodies[kShort][every_stage].push_back(body);
        const bool decodes = context.kernels->tuning().decode.enabled;
        if (decodes && (bucket >= kLongRows || context.limits.max_pictures > 0)) {
          TANDEM_ASSIGN_OR_RETURN(body, record(Sequences::kLong));
        }
        lane.bodies[kLong][every_stage].push_back(body);
        if (bucket >= kFewestChainRows && bucket <= kMostChainRows &&
            AttentionRecorder::FusesChains(context)) {
          TANDEM_ASSIGN_OR_RETURN(body, record(Sequences::kChains));
        }
        lane.bodies[kChains][every_stage].push_back(std::move(body));
      }
    }
    if (!program.has_head_) continue;
    TANDEM_RETURN_IF_ERROR(program.RecordLastFfns(context, l, pool, timestamps));
    TANDEM_RETURN_IF_ERROR(program.RecordHeads(context, l, pool, timestamps));
  }
  return program;
}

SegmentProgram::Cuts SegmentProgram::CutItems(const RecordingContext& context,
                                              const std::vector<double>& seconds) {
  Cuts cuts = {.begins = {0}};
  if (context.times != nullptr) {
    const std::vector<uint32_t> inner = CutsOf(seconds, context.times->budget());
    cuts.begins.insert(cuts.begins.end(), inner.begin(), inner.end());
  }
  const uint32_t second = cuts.begins.size() > 1 ? cuts.begins[1] : seconds.size();
  cuts.first_seconds = std::accumulate(seconds.begin(), seconds.begin() + second, 0.0);
  cuts.last_seconds = std::accumulate(seconds.begin() + cuts.begins.back(), seconds.end(), 0.0);
  cuts.begins.push_back(static_cast<uint32_t>(seconds.size()));
  return cuts;
}

double SegmentProgram::SecondsOf(const RecordingContext& context, Stage stage,
                                 uint32_t rows) const {
  if (context.times == nullptr) return 0;
  return context.times->Of(StageOrdinal(stage, context.weights->config().num_layers), rows);
}

absl::StatusOr<SegmentProgram::Recording> SegmentProgram::RecordBody(
    const RecordingContext& context, uint32_t lane, uint32_t bucket, Sequences sequences,
    bool every_stage, const vulkan::CommandPool& pool, const vulkan::TimestampPool& timestamps) {
  const auto num_stages = static_cast<uint32_t>(body_stages_.size());
  const uint32_t first = lane * timestamps_per_lane_;
  const uint32_t begin = first + (every_stage ? 0 : body_end() - 1), end = first + body_end();
  Recording recording;
  Cuts cuts;
  bool splits = false;
  do {
    const size_t part = recording.parts.size();
    TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                            vulkan::Recorder::Begin(pool, context.kernels->layout()));
    // What was submitted before is written, and what it read may be written.
    recorder.TransferBarrier();
    StageRecorder stages(context, segment_, lane, bucket, sequences, recorder);
    if (part == 0) {
      splits = bucket >= kFewestSplitRows && stages.CanLeaveLastFfn();
      splits_[BucketIndex(bucket)] = splits;
      std::vector<double> seconds(num_stages - (splits ? 1 : 0));
      for (size_t i = 0; i < seconds.size(); ++i) {
        seconds[i] = SecondsOf(context, body_stages_[i], bucket);
      }
      cuts = CutItems(context, seconds);
      recorder.ResetTimestamps(timestamps.handle(), begin, end + 3 - begin);  // with the head's
      recorder.WriteTimestamp(timestamps.handle(), begin);
      TANDEM_RETURN_IF_ERROR(stages.Begin());
    }
    for (uint32_t i = cuts.begins[part]; i < cuts.begins[part + 1]; ++i) {
      TANDEM_RETURN_IF_ERROR(stages.Record(body_stages_[i]));
      if (i + 1 == num_stages) {
        TANDEM_RETURN_IF_ERROR(stages.Finish());
      } else if (every_stage) {
        recorder.WriteTimestamp(timestamps.handle(), first + i + 1);
      }
    }
    stages.Close();
    if (part + 2 == cuts.begins.size()) {
      if (!splits) recorder.WriteTimestamp(timestamps.handle(), end);
      recorder.CopyTimestamps(timestamps, begin, end - begin + (splits ? 0 : 1));
      recorder.HostBarrier();
    }
    TANDEM_ASSIGN_OR_RETURN(recording.parts.emplace_back(), recorder.End());
  } while (recording.parts.size() + 1 < cuts.begins.size());
  recording.first_seconds = cuts.first_seconds;
  recording.last_seconds = cuts.last_seconds;
  return recording;
}

absl::StatusOr<VkCommandBuffer> SegmentProgram::RecordAfterBody(
    const RecordingContext& context, uint32_t lane, uint32_t bucket, const Stamps& stamps,
    const vulkan::CommandPool& pool, const vulkan::TimestampPool& timestamps,
    absl::FunctionRef<absl::Status(StageRecorder&)> record) const {
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(pool, context.kernels->layout()));
  StageRecorder stages(context, segment_, lane, bucket, Sequences::kShort, recorder);
  const uint32_t first = lane * timestamps_per_lane_;
  if (stamps.begin.has_value()) {
    recorder.WriteTimestamp(timestamps.handle(), first + *stamps.begin);
    recorder.CopyTimestamps(timestamps, first + *stamps.begin, 1);
  }
  TANDEM_RETURN_IF_ERROR(record(stages));
  stages.Close();
  if (stamps.end.has_value()) {
    recorder.WriteTimestamp(timestamps.handle(), first + *stamps.end);
    recorder.CopyTimestamps(timestamps, first + *stamps.end, 1);
  }
  recorder.HostBarrier();
  return recorder.End();
}

absl::Status SegmentProgram::RecordLastFfns(const RecordingContext& context, uint32_t lane,
                                            const vulkan::CommandPool& pool,
                                            const vulkan::TimestampPool& timestamps) {
  Lane& recorded = lanes_[lane];
  recorded.last_ffns.resize(splits_.size());
  if (std::ranges::find(splits_, true) == splits_.end()) return absl::OkStatus();
  const auto record = [&](uint32_t bucket, double seconds,
                          absl::FunctionRef<absl::Status(StageRecorder&)> what,
                          Recording& recording) -> absl::Status {
    TANDEM_ASSIGN_OR_RETURN(
        recording.parts.emplace_back(),
        RecordAfterBody(context, lane, bucket, {.end = body_end()}, pool, timestamps, what));
    recording.first_seconds = recording.last_seconds = seconds;
    return absl::OkStatus();
  };
  const Stage ffn = body_stages_.back();
  for (const uint32_t bucket : Buckets(context.limits.max_rows)) {
    const size_t index = BucketIndex(bucket);
    if (!splits_[index]) continue;
    TANDEM_RETURN_IF_ERROR(record(
        bucket, SecondsOf(context, ffn, bucket),
        [&](StageRecorder& stages) { return stages.Record(ffn); }, recorded.last_ffns[index]));
  }
  for (const uint32_t bucket : Buckets(context.limits.max_outputs)) {
    TANDEM_RETURN_IF_ERROR(record(
        bucket, SecondsOf(context, ffn, bucket),
        [](StageRecorder& stages) { return stages.RecordOutputsFfn(); },
        recorded.last_ffns_of_outputs.emplace_back()));
  }
  return record(
      1, 0, [](StageRecorder&) { return absl::OkStatus(); }, recorded.no_last_ffn);
}

absl::StatusOr<SegmentProgram::Recording> SegmentProgram::RecordHead(
    const RecordingContext& context, uint32_t lane, uint32_t bucket, const HeadShape& shape,
    const vulkan::CommandPool& pool, const vulkan::TimestampPool& timestamps) const {
  const uint32_t tile = std::min(bucket, context.buffers->head_tile);
  const Cuts cuts = CutItems(
      context, std::vector<double>(bucket / tile, SecondsOf(context, {StageKind::kHead, 0}, tile)));
  Recording recording = {.first_seconds = cuts.first_seconds, .last_seconds = cuts.last_seconds};
  for (size_t part = 0; part + 1 < cuts.begins.size(); ++part) {
    Stamps stamps;
    if (part == 0 && shape.masked) stamps.begin = body_end() + 2;
    if (part + 2 == cuts.begins.size()) stamps.end = body_end() + 1;
    TANDEM_ASSIGN_OR_RETURN(recording.parts.emplace_back(),
                            RecordAfterBody(context, lane, bucket, stamps, pool, timestamps,
                                            [&](StageRecorder& stages) {
                                              return stages.RecordHead(
                                                  shape, cuts.begins[part] * tile,
                                                  cuts.begins[part + 1] * tile);
                                            }));
  }
  return recording;
}

absl::Status SegmentProgram::RecordHeads(const RecordingContext& context, uint32_t lane,
                                         const vulkan::CommandPool& pool,
                                         const vulkan::TimestampPool& timestamps) {
  Lane& recorded = lanes_[lane];
  for (const bool with_logits : {false, true}) {
    for (const bool masked : {false, true}) {
      for (const uint32_t bucket :
           Buckets(with_logits ? context.limits.max_logit_outputs : context.limits.max_outputs)) {
        TANDEM_ASSIGN_OR_RETURN(
            recorded.heads[with_logits][masked].emplace_back(),
            RecordHead(context, lane, bucket, {with_logits, masked}, pool, timestamps));
      }
    }
  }
  const auto record_pooling = [&](const Stamps& stamps) {
    return RecordAfterBody(context, lane, context.limits.max_rows, stamps, pool, timestamps,
                           [](StageRecorder& stages) { return stages.RecordPool(); });
  };
  TANDEM_ASSIGN_OR_RETURN(recorded.pooling.parts.emplace_back(), record_pooling({}));
  TANDEM_ASSIGN_OR_RETURN(recorded.pooling_alone.parts.emplace_back(),
                          record_pooling({.end = body_end() + 1}));
  return absl::OkStatus();
}

const SegmentProgram::Recording* SegmentProgram::LastFfnFor(uint32_t lane,
                                                            const StepShape& shape) const {
  const Lane& recorded = lanes_[lane];
  const size_t rows = BucketIndex(shape.num_rows);
  if (!splits_[rows]) return nullptr;
  if (shape.num_pooled > 0) return &recorded.last_ffns[rows];
  if (shape.num_outputs == 0) return &recorded.no_last_ffn;
  const size_t outputs = BucketIndex(shape.num_outputs);
  const bool outputs_alone = outputs < rows && shape.outputs_rise;
  return outputs_alone ? &recorded.last_ffns_of_outputs[outputs] : &recorded.last_ffns[rows];
}

uint32_t SegmentProgram::NumBodyParts(uint32_t bucket) const {
  return static_cast<uint32_t>(lanes_[0].bodies[kShort][0][BucketIndex(bucket)].parts.size());
}

SegmentProgram::Submission SegmentProgram::For(uint32_t lane, const StepShape& shape,
                                               bool every_stage) const {
  const Lane& recorded = lanes_[lane];
  Submission submission;
  double pending = 0;  // seconds of the submission that is being filled
  const auto add = [&](const Recording& recording) {
    const bool joins = recording.first_seconds == 0 || pending + recording.first_seconds <= budget_;
    submission.recordings[submission.num_recordings++] = {recording.parts, joins};
    const bool fills = joins && recording.parts.size() == 1;
    pending = recording.last_seconds + (fills ? pending : 0);
  };
  add(recorded.bodies[static_cast<int>(shape.sequences)][every_stage][BucketIndex(shape.num_rows)]);
  if (const Recording* last_ffn = LastFfnFor(lane, shape)) add(*last_ffn);
  const uint32_t within = every_stage ? 0 : body_end() - 1;
  submission.first_timestamp = lane * timestamps_per_lane_ + within;
  submission.num_timestamps = body_end() + 1 - within;
  if (!has_head_) return submission;
  if (shape.num_pooled > 0) {
    add(shape.num_outputs > 0 ? recorded.pooling : recorded.pooling_alone);
  }
  if (shape.num_outputs > 0) {
    const auto& heads = recorded.heads[shape.head.with_logits][shape.head.masked];
    add(heads[BucketIndex(shape.num_outputs)]);
    submission.masked_head = shape.head.masked;
  }
  if (shape.num_outputs > 0 || shape.num_pooled > 0) {
    submission.num_timestamps += submission.masked_head ? 2 : 1;
    submission.head = true;
  }
  return submission;
}

}  // namespace tandem::gpu
