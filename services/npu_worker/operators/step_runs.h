// A step as attention's control code takes it: runs of rows, and where their sequences lie in the cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "services/common/step/step_batch.h"
#include "services/npu_worker/control/attention.h"

namespace tandem::npu {

// One KV group's view of a step.  Thread-compatible; reused from step to step.
class StepRuns {
 public:
  struct Options {
    KvGroup group = kGlobalGroup;
    uint32_t window = 0;        // of the group's layers; 0: none
    uint32_t block_tokens = 0;  // block b has slots from b * block_tokens on
    uint32_t num_blocks = 0;
    uint32_t picture_rows = 0;  // of a whole picture
  };

  // Replaces the runs by those of `step`.  A sequence is one run, or, with pictures, one for each
  // picture and for the text between.  INVALID_ARGUMENT: a position that a row sees lies in no block,
  // or in one that does not exist.
  absl::Status Set(const StepBatch& step, const Options& options);

  // Their extents are this object's.
  std::span<const AttentionRun> runs() const { return runs_; }

 private:
  absl::Status AddExtents(const StepBatch& step, const SequenceEntry& sequence, uint32_t first_seen,
                          const Options& options);

  std::vector<AttentionRun> runs_;
  std::vector<CacheExtent> extents_;
  // Of each run, its sequence's extents: [first, end).
  std::vector<std::pair<size_t, size_t>> extents_of_run_;
};

}  // namespace tandem::npu
