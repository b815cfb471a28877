// A segment's command buffers, recorded at load and resubmitted step by step.
//
// A step is its body and then, if this worker has the Head, the part for outputs and pooled
// sequences.  Only that part reads the last layer's Ffn.  So with many rows the body ends before
// that Ffn, which follows for the rows of the outputs, for all rows, or not at all.
//
// Where a step would keep a device too long (StageTimes), bodies and heads are recorded in parts of
// whole stages, each a submission of its own.  A part begins with a barrier for everything that was
// submitted before it.  It has phases of its own: no dependency counter is awaited across a cut.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "services/common/plan/stage.h"
#include "services/gpu_worker/stages/stage_recorder.h"
#include "services/gpu_worker/vulkan/query_pool.h"

namespace tandem::gpu {

// Row counts are rounded up to a power of two: 1, 2, 4 ... up to the first not below `max`.
std::vector<uint32_t> Buckets(uint32_t max);
inline size_t BucketIndex(uint32_t count) { return static_cast<size_t>(std::bit_width(count - 1)); }

// Rows from which the last Ffn may come after the body.  Steps of fewer rows mostly decode, and
// then nearly all rows have outputs.
inline constexpr uint32_t kFewestSplitRows = 16;

// Selects the recordings of a segment for a step.
struct StepShape {
  uint32_t num_rows = 0, num_outputs = 0, num_pooled = 0;
  HeadShape head;
  Sequences sequences = Sequences::kShort;
  bool outputs_rise = true;  // output rows strictly increase (no duplicates)

  static StepShape Of(const StepBatch& step, const TileRules& rules);
};

class SegmentProgram {
 public:
  // The command buffers submitted for one step.
  struct Submission {
    // A recording's parts, borrowed from the program.
    struct Parts {
      std::span<const VkCommandBuffer> commands;
      bool joins = false;  // the first one shares a submission with the last one before
    };
    static constexpr uint32_t kMostParts = 4;  // body, last Ffn, pooling, head
    std::array<Parts, kMostParts> recordings = {};
    uint32_t num_recordings = 0;
    uint32_t first_timestamp = 0;  // where the body begins
    uint32_t num_timestamps = 0;   // up to the head's, if it runs
    bool head = false;             // outputs, pooled sequences or both
    bool masked_head = false;      // the last timestamp is its begin
  };

  // Records every lane and bucket.  `context`: its pointers must outlive this.
  static absl::StatusOr<SegmentProgram> Create(const RecordingContext& context,
                                               const Segment& segment, uint32_t num_lanes,
                                               const vulkan::CommandPool& pool,
                                               const vulkan::TimestampPool& timestamps,
                                               uint32_t timestamps_per_lane);

  const Segment& segment() const { return segment_; }
  bool has_head() const { return has_head_; }

  // REQUIRES counts within the limits, and an existing lane.  `every_stage`: record the end of each
  // stage, not only of the body.
  Submission For(uint32_t lane, const StepShape& shape, bool every_stage) const;
  // The submissions of a step's body in a row bucket.
  uint32_t NumBodyParts(uint32_t bucket) const;
  // The segment's stages but the head.
  const std::vector<Stage>& body_stages() const { return body_stages_; }

  // Timestamps: the start of the body, the ends of its stages, the end of the last Ffn wherever it
  // is recorded, the end of the head, the begin of a head with masks, which it may have to wait
  // for.  If stages are not recorded, the start is written right
  // before the body's end, so that all written timestamps are consecutive.
  uint32_t body_end() const {
    return std::max<uint32_t>(1, static_cast<uint32_t>(body_stages_.size()));
  }
  // Most timestamps that a segment of `num_stages` writes; each lane has as many of its own.
  static uint32_t MaxTimestamps(uint32_t num_stages) { return num_stages + 3; }

 private:
  // Command buffers that follow one another, each a submission.
  struct Recording {
    std::vector<VkCommandBuffer> parts;
    double first_seconds = 0, last_seconds = 0;  // of the first and the last part, estimated
  };
  // Of stages, or of a head's tiles.
  struct Cuts {
    std::vector<uint32_t> begins;  // of each part, and the end of the last
    double first_seconds = 0, last_seconds = 0;
  };
  static Cuts CutItems(const RecordingContext& context, const std::vector<double>& seconds);
  // Estimated; 0 where nothing is cut.
  double SecondsOf(const RecordingContext& context, Stage stage, uint32_t rows) const;

  absl::StatusOr<Recording> RecordBody(const RecordingContext& context, uint32_t lane,
                                       uint32_t bucket, Sequences sequences, bool every_stage,
                                       const vulkan::CommandPool& pool,
                                       const vulkan::TimestampPool& timestamps);
  // Timestamps of a lane that a part writes; null: it does not.
  struct Stamps {
    std::optional<uint32_t> begin, end;
  };
  // Records a part after a body: `record` for a bucket of its rows or outputs, with its timestamps.
  absl::StatusOr<VkCommandBuffer> RecordAfterBody(
      const RecordingContext& context, uint32_t lane, uint32_t bucket, const Stamps& stamps,
      const vulkan::CommandPool& pool, const vulkan::TimestampPool& timestamps,
      absl::FunctionRef<absl::Status(StageRecorder&)> record) const;
  // Records all parts after the bodies of a lane.
  absl::Status RecordLastFfns(const RecordingContext& context, uint32_t lane,
                              const vulkan::CommandPool& pool,
                              const vulkan::TimestampPool& timestamps);
  absl::StatusOr<Recording> RecordHead(const RecordingContext& context, uint32_t lane,
                                       uint32_t bucket, const HeadShape& shape,
                                       const vulkan::CommandPool& pool,
                                       const vulkan::TimestampPool& timestamps) const;
  absl::Status RecordHeads(const RecordingContext& context, uint32_t lane,
                           const vulkan::CommandPool& pool,
                           const vulkan::TimestampPool& timestamps);
  // The last Ffn as a step of `shape` needs it; null: its body has it.
  const Recording* LastFfnFor(uint32_t lane, const StepShape& shape) const;

  struct Lane {
    // By row bucket; [long sequences][every stage].  Equal entries where it makes no difference.
    std::vector<Recording> bodies[kNumSequencesKinds][2];
    std::vector<Recording> last_ffns;             // by row bucket, empty where bodies have it
    std::vector<Recording> last_ffns_of_outputs;  // by output bucket
    Recording no_last_ffn;
    std::vector<Recording> heads[2][2];  // by output bucket; [with logits][masked]
    Recording pooling;                   // before a head
    Recording pooling_alone;
  };
  Segment segment_;
  bool has_head_ = false;
  std::vector<Stage> body_stages_;
  std::vector<bool> splits_;  // by row bucket: bodies lack the last Ffn, as RecordBody found
  std::vector<Lane> lanes_;
  uint32_t timestamps_per_lane_ = 0;
  double budget_ = std::numeric_limits<double>::infinity();  // seconds of a submission
};

}  // namespace tandem::gpu
