// How long a model's stages take on a device, and where a step is cut into submissions.
//
// While a submission runs, nothing else runs on a small GPU: a desktop stands still, and a driver
// that waits for too long resets the device.  So a step that would take long is several
// submissions, each of whole stages.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "services/common/plan/stage.h"
#include "services/common/step/step_batch.h"
#include "services/common/weights/weight_set.h"

namespace tandem::gpu {

// Seconds of a stage by its rows, measured at some counts of rows.
using SecondsByRows = std::map<uint32_t, double>;

// Between measured counts on the line through them, below the first as the first, above the last
// in proportion to the rows.  REQUIRES a measured count.
double SecondsAt(const SecondsByRows& measured, uint32_t rows);

class StageTimes {
 public:
  // `longest_seconds`: of a submission.  `num_stages`: of the model.
  StageTimes(double longest_seconds, uint32_t num_stages)
      : longest_(longest_seconds), of_stage_(num_stages) {}

  double longest() const { return longest_; }
  // The seconds to fill a submission with: half of the longest.  The rest is for a device that is
  // slower than it was when it was measured: lower clocks, other work.
  double budget() const { return longest_ / 2; }

  // Stages that differ in nothing that takes time share their measurements.
  void Set(uint32_t ordinal, const SecondsByRows& measured) { of_stage_[ordinal] = measured; }
  // Of a Head, `rows` are outputs.  0: not measured, no stage of this worker.
  double Of(uint32_t ordinal, uint32_t rows) const;

  // A stage that takes longer than a submission may.
  struct LongStage {
    uint32_t ordinal = 0, rows = 0;
    double seconds = 0;
    uint32_t fitting_rows = 0;  // with which every stage fits; 0: not even one row does
  };
  // The longest one at the fewest of `row_buckets` (ascending) that are too many; null: all fit.
  // A Head goes `head_tile` outputs at a time.
  std::optional<LongStage> FindLongStage(std::span<const uint32_t> row_buckets,
                                         uint32_t head_tile) const;

 private:
  double longest_;
  std::vector<SecondsByRows> of_stage_;  // by ordinal
};

// Cuts consecutive stages into parts of at most `budget` seconds.  Returns the index of the first
// stage of each part but the first.  A stage over the budget is a part by itself.
std::vector<uint32_t> CutsOf(std::span<const double> seconds, double budget);

// Whether a step of `segment` could take longer than `seconds` on the slowest GPU that there is:
// 0.1 TFLOP/s, 5 GB/s.  `kv_bytes`: of the KV cache.
bool MayTakeLonger(double seconds, const Segment& segment, const WeightSet& weights,
                   const StepLimits& limits, uint64_t kv_bytes);

}  // namespace tandem::gpu
