// Measures variants of kernels with a model's own stages, weights and buffers.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/kernels/tuning_table.h"
#include "services/gpu_worker/stages/stage_recorder.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

struct TuneBudget {
  absl::Duration device;  // that steps may run
  absl::Duration wall;    // with the driver's compiling of pipelines
};

// Tries each value of one setting after another, and keeps the value with the least time for the
// setting's cases, if the gain exceeds the noise.  A case is one of: all stages on this worker of
// as many first layers as no cache holds, over rows that see nothing; attention alone, in all
// layers; the head.
//
// Single-use, single-thread.  Overwrites the buffers, which must be unused.
class Tuner {
 public:
  // `device`, `context`, `segments`, `timeline`: borrowed.  `context.buffers` must have been made
  // under a tuning as wide as WidestTuning.
  Tuner(const vulkan::Device& device, const RecordingContext& context,
        const std::vector<Segment>& segments, vulkan::Timeline& timeline);

  // Changes the kernels' tuning.  Returns the settings that the budget sufficed for, with the time
  // of each value.  UNAVAILABLE: the device is lost.
  absl::Status Tune(const TuneBudget& budget, absl::FunctionRef<void(double)> progress,
                    TuningTable& table);

 private:
  using Times = std::map<TuningCase, double>;
  // Whether this worker has work of the case, within the limits of its steps.
  bool CanRun(const TuningCase& tuning_case) const;
  // Seconds of a step.  Fails if the driver refuses a pipeline.
  absl::StatusOr<double> Measure(const TuningCase& tuning_case);
  // Times of the cases under the current tuning, kept until it changes.
  absl::StatusOr<Times> Baseline(const std::vector<TuningCase>& cases);
  absl::Status Try(const TuningSetting& setting, TuningTable& table);
  absl::Status RecordStep(const TuningCase& tuning_case, vulkan::Recorder& recorder);
  bool IsSpent() const;

  const vulkan::Device& device_;          // Borrowed.
  const RecordingContext& context_;       // Borrowed.
  const std::vector<Segment>& segments_;  // Borrowed.
  vulkan::Timeline& timeline_;            // Borrowed.
  Tuning& tuning_;                        // the kernels'
  uint32_t num_layers_ = 0;               // of a step of kLayers
  TuneBudget budget_;
  absl::Duration device_spent_;
  absl::Time begun_;
  Times baseline_;
};

// The largest buffers that any choice of the settings needs.
Tuning WidestTuning(const vulkan::DeviceInfo& info, const Tuning& tuning);

}  // namespace tandem::gpu
