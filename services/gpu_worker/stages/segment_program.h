// A segment's command buffers, recorded at load and resubmitted step by step.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/plan/stage.h"
#include "services/gpu_worker/stages/stage_recorder.h"
#include "services/gpu_worker/vulkan/query_pool.h"

namespace tandem::gpu {

// Row counts are rounded up to a power of two: 1, 2, 4 ... up to the first not below `max`.
std::vector<uint32_t> Buckets(uint32_t max);
inline size_t BucketIndex(uint32_t count) { return static_cast<size_t>(std::bit_width(count - 1)); }

class SegmentProgram {
 public:
  // What is submitted for one step.
  struct Submission {
    std::array<VkCommandBuffer, 3> commands = {};
    uint32_t num_commands = 0;
    uint32_t first_timestamp = 0;  // where the body begins
    uint32_t num_timestamps = 0;   // up to the head's, if it runs
    bool head = false;             // outputs, pools or both
  };

  // Records every lane and bucket.  `context`: its pointers must outlive this.
  static absl::StatusOr<SegmentProgram> Create(const RecordingContext& context,
                                               const Segment& segment, uint32_t num_lanes,
                                               const vulkan::CommandPool& pool,
                                               const vulkan::TimestampPool& timestamps,
                                               uint32_t timestamps_per_lane);

  const Segment& segment() const { return segment_; }
  bool has_head() const { return has_head_; }

  // REQUIRES counts within the limits, a lane there is.  `long_sequences`: see attention_step.h.
  // `every_stage`: the end of each stage is noted, not the body's alone.
  Submission For(uint32_t lane, const StepHeader& header, bool long_sequences,
                 bool every_stage) const;
  // The segment's stages but the head.
  const std::vector<Stage>& body_stages() const { return body_stages_; }

  // Timestamps: where the body begins, the ends of its stages, the head's end.  Where stages are
  // not noted the body begins right before its end, so that what is written is always in a row.
  uint32_t body_end() const {
    return std::max<uint32_t>(1, static_cast<uint32_t>(body_stages_.size()));
  }
  // Most timestamps that a segment of `num_stages` writes; each lane has as many of its own.
  static uint32_t MaxTimestamps(uint32_t num_stages) { return num_stages + 2; }

 private:
  absl::StatusOr<VkCommandBuffer> RecordBody(const RecordingContext& context, uint32_t lane,
                                             uint32_t bucket, bool long_sequences, bool every_stage,
                                             const vulkan::CommandPool& pool,
                                             const vulkan::TimestampPool& timestamps);
  absl::StatusOr<VkCommandBuffer> RecordHead(const RecordingContext& context, uint32_t lane,
                                             uint32_t bucket, bool with_logits,
                                             const vulkan::CommandPool& pool,
                                             const vulkan::TimestampPool& timestamps);

  void WriteHeadEnd(uint32_t lane, const vulkan::TimestampPool& timestamps,
                    vulkan::Recorder& recorder) const;
  // `last`: no head follows.
  absl::StatusOr<VkCommandBuffer> RecordPool(const RecordingContext& context, uint32_t lane,
                                             bool last, const vulkan::CommandPool& pool,
                                             const vulkan::TimestampPool& timestamps);

  struct Lane {
    // By row bucket; [long sequences][every stage].  The same where it makes no difference.
    std::vector<VkCommandBuffer> bodies[2][2];
    std::vector<VkCommandBuffer> heads;  // by output bucket
    std::vector<VkCommandBuffer> heads_with_logits;
    VkCommandBuffer pool = VK_NULL_HANDLE;  // before a head
    VkCommandBuffer pool_alone = VK_NULL_HANDLE;
  };
  Segment segment_;
  bool has_head_ = false;
  std::vector<Stage> body_stages_;
  std::vector<Lane> lanes_;
  uint32_t timestamps_per_lane_ = 0;
};

}  // namespace tandem::gpu
