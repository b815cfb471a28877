#include "services/gpu_worker/stages/segment_program.h"

#include "services/common/base/status_macros.h"
#include "services/gpu_worker/kernels/attention_step.h"

namespace tandem::gpu {

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
    for (const uint32_t bucket : Buckets(context.limits.max_outputs)) {
      TANDEM_ASSIGN_OR_RETURN(lane.heads.emplace_back(),
                              program.RecordHead(context, l, bucket, false, pool, timestamps));
    }
    for (const uint32_t bucket : Buckets(context.limits.max_logit_outputs)) {
      TANDEM_ASSIGN_OR_RETURN(lane.heads_with_logits.emplace_back(),
                              program.RecordHead(context, l, bucket, true, pool, timestamps));
    }
    TANDEM_ASSIGN_OR_RETURN(lane.pool, program.RecordPool(context, l, false, pool, timestamps));
    TANDEM_ASSIGN_OR_RETURN(lane.pool_alone,
                            program.RecordPool(context, l, true, pool, timestamps));
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
  TANDEM_RETURN_IF_ERROR(stages.Begin());
  for (uint32_t i = 0; i < num_stages; ++i) {
    TANDEM_RETURN_IF_ERROR(stages.Record(body_stages_[i]));
    if (i + 1 == num_stages) {
      TANDEM_RETURN_IF_ERROR(stages.Finish());
    } else if (every_stage) {
      recorder.WriteTimestamp(timestamps.handle(), first + i + 1);
    }
  }
  stages.Close();
  recorder.WriteTimestamp(timestamps.handle(), end);
  recorder.CopyTimestamps(timestamps, begin, end + 1 - begin);
  recorder.HostBarrier();
  return recorder.End();
}

void SegmentProgram::WriteHeadEnd(uint32_t lane, const vulkan::TimestampPool& timestamps,
                                  vulkan::Recorder& recorder) const {
  const uint32_t index = lane * timestamps_per_lane_ + body_end() + 1;
  recorder.WriteTimestamp(timestamps.handle(), index);
  recorder.CopyTimestamps(timestamps, index, 1);
}

absl::StatusOr<VkCommandBuffer> SegmentProgram::RecordHead(
    const RecordingContext& context, uint32_t lane, uint32_t bucket, bool with_logits,
    const vulkan::CommandPool& pool, const vulkan::TimestampPool& timestamps) {
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(pool, context.kernels->layout()));
  StageRecorder stages(context, segment_, lane, bucket, false, recorder);
  TANDEM_RETURN_IF_ERROR(stages.RecordHead(with_logits));
  stages.Close();
  WriteHeadEnd(lane, timestamps, recorder);
  recorder.HostBarrier();
  return recorder.End();
}

absl::StatusOr<VkCommandBuffer> SegmentProgram::RecordPool(
    const RecordingContext& context, uint32_t lane, bool last, const vulkan::CommandPool& pool,
    const vulkan::TimestampPool& timestamps) {
  TANDEM_ASSIGN_OR_RETURN(vulkan::Recorder recorder,
                          vulkan::Recorder::Begin(pool, context.kernels->layout()));
  StageRecorder stages(context, segment_, lane, context.limits.max_rows, false, recorder);
  TANDEM_RETURN_IF_ERROR(stages.RecordPool());
  stages.Close();
  if (last) WriteHeadEnd(lane, timestamps, recorder);
  recorder.HostBarrier();
  return recorder.End();
}

SegmentProgram::Submission SegmentProgram::For(uint32_t lane, const StepHeader& header,
                                               bool long_sequences, bool every_stage) const {
  const Lane& recorded = lanes_[lane];
  Submission submission;
  const auto& bodies = recorded.bodies[long_sequences][every_stage];
  submission.commands[submission.num_commands++] = bodies[BucketIndex(header.num_rows)];
  const uint32_t within = every_stage ? 0 : body_end() - 1;
  submission.first_timestamp = lane * timestamps_per_lane_ + within;
  submission.num_timestamps = body_end() + 1 - within;
  if (!has_head_) return submission;
  if (header.num_pools > 0) {
    submission.commands[submission.num_commands++] =
        header.num_outputs > 0 ? recorded.pool : recorded.pool_alone;
  }
  if (header.num_outputs > 0) {
    const auto& heads = header.want_logits != 0 ? recorded.heads_with_logits : recorded.heads;
    submission.commands[submission.num_commands++] = heads[BucketIndex(header.num_outputs)];
  }
  if (header.num_outputs > 0 || header.num_pools > 0) {
    ++submission.num_timestamps;
    submission.head = true;
  }
  return submission;
}

}  // namespace tandem::gpu
