#include "services/gpu_worker/stages/segment_program.h"

#include <algorithm>
#include <functional>

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"

namespace tandem::gpu {

StepShape StepShape::Of(const StepBatch& step) {
  const bool rise = std::ranges::adjacent_find(step.outputs, std::ranges::greater_equal(),
                                               &OutputEntry::row) == step.outputs.end();
  return {.num_rows = step.header.num_rows,
          .num_outputs = step.header.num_outputs,
          .num_pools = step.header.num_pools,
          .want_logits = step.header.want_logits != 0,
          .long_sequences = HasLongSequence(step),
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
        auto& bodies = lane.bodies[0][every_stage];
        auto& long_bodies = lane.bodies[1][every_stage];
        TANDEM_ASSIGN_OR_RETURN(
            bodies.emplace_back(),
            program.RecordBody(context, l, bucket, false, every_stage, pool, timestamps));
        long_bodies.push_back(bodies.back());
        if (!context.kernels->tuning().decode.enabled || bucket < kLongRows) continue;
        TANDEM_ASSIGN_OR_RETURN(
            long_bodies.back(),
            program.RecordBody(context, l, bucket, true, every_stage, pool, timestamps));
      }
    }
    if (!program.has_head_) continue;
    TANDEM_RETURN_IF_ERROR(program.RecordLastFfns(context, l, pool, timestamps));
    TANDEM_RETURN_IF_ERROR(program.RecordHeads(context, l, pool, timestamps));
  }
  return program;
}

absl::StatusOr<VkCommandBuffer> SegmentProgram::RecordBody(
    const RecordingContext& context, uint32_t lane, uint32_t bucket, bool long_sequences,
    bool every_stage, const vulkan::CommandPool& pool, const vulkan::TimestampPool& timestamps) {
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(pool, context.kernels->layout()));
  const auto num_stages = static_cast<uint32_t>(body_stages_.size());
  const uint32_t first = lane * timestamps_per_lane_;
  const uint32_t begin = first + (every_stage ? 0 : body_end() - 1), end = first + body_end();
  // What the step before wrote is there, and what it read may be written.
  recorder.TransferBarrier();
  recorder.ResetTimestamps(timestamps.handle(), begin, end + 2 - begin);  // with the head's
  recorder.WriteTimestamp(timestamps.handle(), begin);
  StageRecorder stages(context, segment_, lane, bucket, long_sequences, recorder);
  const bool splits = bucket >= kFewestSplitRows && stages.CanLeaveLastFfn();
  splits_[BucketIndex(bucket)] = splits;
  const uint32_t num_recorded = num_stages - (splits ? 1 : 0);
  TANDEM_RETURN_IF_ERROR(stages.Begin());
  for (uint32_t i = 0; i < num_recorded; ++i) {
    TANDEM_RETURN_IF_ERROR(stages.Record(body_stages_[i]));
    if (i + 1 == num_stages) {
      TANDEM_RETURN_IF_ERROR(stages.Finish());
    } else if (every_stage) {
      recorder.WriteTimestamp(timestamps.handle(), first + i + 1);
    }
  }
  stages.Close();
  if (!splits) recorder.WriteTimestamp(timestamps.handle(), end);
  recorder.CopyTimestamps(timestamps, begin, end - begin + (splits ? 0 : 1));
  recorder.HostBarrier();
  return recorder.End();
}

absl::StatusOr<VkCommandBuffer> SegmentProgram::RecordAfterBody(
    const RecordingContext& context, uint32_t lane, uint32_t bucket, std::optional<uint32_t> end,
    const vulkan::CommandPool& pool, const vulkan::TimestampPool& timestamps,
    absl::FunctionRef<absl::Status(StageRecorder&)> record) const {
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(pool, context.kernels->layout()));
  StageRecorder stages(context, segment_, lane, bucket, false, recorder);
  TANDEM_RETURN_IF_ERROR(record(stages));
  stages.Close();
  if (end.has_value()) {
    const uint32_t index = lane * timestamps_per_lane_ + *end;
    recorder.WriteTimestamp(timestamps.handle(), index);
    recorder.CopyTimestamps(timestamps, index, 1);
  }
  recorder.HostBarrier();
  return recorder.End();
}

absl::Status SegmentProgram::RecordLastFfns(const RecordingContext& context, uint32_t lane,
                                            const vulkan::CommandPool& pool,
                                            const vulkan::TimestampPool& timestamps) {
  Lane& recorded = lanes_[lane];
  recorded.last_ffns.resize(splits_.size(), VK_NULL_HANDLE);
  if (std::ranges::find(splits_, true) == splits_.end()) return absl::OkStatus();
  const auto record = [&](uint32_t bucket, absl::FunctionRef<absl::Status(StageRecorder&)> what) {
    return RecordAfterBody(context, lane, bucket, body_end(), pool, timestamps, what);
  };
  for (const uint32_t bucket : Buckets(context.limits.max_rows)) {
    const size_t index = BucketIndex(bucket);
    if (!splits_[index]) continue;
    TANDEM_ASSIGN_OR_RETURN(recorded.last_ffns[index], record(bucket, [&](StageRecorder& stages) {
                              return stages.Record(body_stages_.back());
                            }));
  }
  for (const uint32_t bucket : Buckets(context.limits.max_outputs)) {
    TANDEM_ASSIGN_OR_RETURN(
        recorded.last_ffns_of_outputs.emplace_back(),
        record(bucket, [](StageRecorder& stages) { return stages.RecordOutputsFfn(); }));
  }
  TANDEM_ASSIGN_OR_RETURN(recorded.no_last_ffn,
                          record(1, [](StageRecorder&) { return absl::OkStatus(); }));
  return absl::OkStatus();
}

absl::Status SegmentProgram::RecordHeads(const RecordingContext& context, uint32_t lane,
                                         const vulkan::CommandPool& pool,
                                         const vulkan::TimestampPool& timestamps) {
  Lane& recorded = lanes_[lane];
  const uint32_t end = body_end() + 1;
  const auto record_head = [&](uint32_t bucket, bool with_logits) {
    return RecordAfterBody(
        context, lane, bucket, end, pool, timestamps,
        [with_logits](StageRecorder& stages) { return stages.RecordHead(with_logits); });
  };
  for (const uint32_t bucket : Buckets(context.limits.max_outputs)) {
    TANDEM_ASSIGN_OR_RETURN(recorded.heads.emplace_back(), record_head(bucket, false));
  }
  for (const uint32_t bucket : Buckets(context.limits.max_logit_outputs)) {
    TANDEM_ASSIGN_OR_RETURN(recorded.heads_with_logits.emplace_back(), record_head(bucket, true));
  }
  const auto record_pool = [&](std::optional<uint32_t> pool_end) {
    return RecordAfterBody(context, lane, context.limits.max_rows, pool_end, pool, timestamps,
                           [](StageRecorder& stages) { return stages.RecordPool(); });
  };
  TANDEM_ASSIGN_OR_RETURN(recorded.pool, record_pool(std::nullopt));
  TANDEM_ASSIGN_OR_RETURN(recorded.pool_alone, record_pool(end));
  return absl::OkStatus();
}

VkCommandBuffer SegmentProgram::LastFfnFor(uint32_t lane, const StepShape& shape) const {
  const Lane& recorded = lanes_[lane];
  const size_t rows = BucketIndex(shape.num_rows);
  if (!splits_[rows]) return VK_NULL_HANDLE;
  if (shape.num_pools > 0) return recorded.last_ffns[rows];
  if (shape.num_outputs == 0) return recorded.no_last_ffn;
  const size_t outputs = BucketIndex(shape.num_outputs);
  const bool outputs_alone = outputs < rows && shape.outputs_rise;
  return outputs_alone ? recorded.last_ffns_of_outputs[outputs] : recorded.last_ffns[rows];
}

SegmentProgram::Submission SegmentProgram::For(uint32_t lane, const StepShape& shape,
                                               bool every_stage) const {
  const Lane& recorded = lanes_[lane];
  Submission submission;
  const auto& bodies = recorded.bodies[shape.long_sequences][every_stage];
  submission.commands[submission.num_commands++] = bodies[BucketIndex(shape.num_rows)];
  if (const VkCommandBuffer last_ffn = LastFfnFor(lane, shape); last_ffn != VK_NULL_HANDLE) {
    submission.commands[submission.num_commands++] = last_ffn;
  }
  const uint32_t within = every_stage ? 0 : body_end() - 1;
  submission.first_timestamp = lane * timestamps_per_lane_ + within;
  submission.num_timestamps = body_end() + 1 - within;
  if (!has_head_) return submission;
  if (shape.num_pools > 0) {
    submission.commands[submission.num_commands++] =
        shape.num_outputs > 0 ? recorded.pool : recorded.pool_alone;
  }
  if (shape.num_outputs > 0) {
    const auto& heads = shape.want_logits ? recorded.heads_with_logits : recorded.heads;
    submission.commands[submission.num_commands++] = heads[BucketIndex(shape.num_outputs)];
  }
  if (shape.num_outputs > 0 || shape.num_pools > 0) {
    ++submission.num_timestamps;
    submission.head = true;
  }
  return submission;
}

}  // namespace tandem::gpu
