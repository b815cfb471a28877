// A segment's command buffers, recorded at load and resubmitted step by step.
#pragma once

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
    std::array<VkCommandBuffer, 2> commands = {};
    uint32_t num_commands = 0;
    uint32_t num_timestamps = 0;
  };

  // Records every lane and bucket.  `context`: its pointers must outlive this.
  static absl::StatusOr<SegmentProgram> Create(const RecordingContext& context,
                                               const Segment& segment, uint32_t num_lanes,
                                               const vulkan::CommandPool& pool,
                                               const vulkan::TimestampPool& timestamps);

  const Segment& segment() const { return segment_; }
  bool has_head() const { return has_head_; }

  // REQUIRES counts within the limits, a lane there is.  `long_sequences`: see attention_step.h.
  Submission For(uint32_t lane, const StepHeader& header, bool long_sequences) const;
  // Stage kinds in the order of their timestamps: timestamp i + 1 ends kinds[i].
  const std::vector<StageKind>& timed_kinds() const { return kinds_; }

  // Most timestamps that a segment of `num_stages` writes.
  static uint32_t MaxTimestamps(uint32_t num_stages) { return num_stages + 1; }

 private:
  absl::StatusOr<VkCommandBuffer> RecordBody(const RecordingContext& context, uint32_t lane,
                                             uint32_t bucket, bool long_sequences,
                                             const vulkan::CommandPool& pool,
                                             const vulkan::TimestampPool& timestamps);
  absl::StatusOr<VkCommandBuffer> RecordHead(const RecordingContext& context, uint32_t lane,
                                             uint32_t bucket, bool with_logits,
                                             const vulkan::CommandPool& pool,
                                             const vulkan::TimestampPool& timestamps);

  struct Lane {
    std::vector<VkCommandBuffer> bodies;       // by row bucket
    std::vector<VkCommandBuffer> long_bodies;  // the same where it makes no difference
    std::vector<VkCommandBuffer> heads;        // by output bucket
    std::vector<VkCommandBuffer> heads_with_logits;
  };
  Segment segment_;
  bool has_head_ = false;
  std::vector<Stage> body_stages_;
  std::vector<StageKind> kinds_;
  std::vector<Lane> lanes_;
};

}  // namespace tandem::gpu
