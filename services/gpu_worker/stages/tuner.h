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

// One setting after another is given each of its values, and keeps the one with which steps of its
// row buckets take least time, if it is more than the noise less.  A step here is the first layers
// whose weights no cache holds, every stage of theirs that runs on this worker, over rows that see
// nothing: attention is not measured.
//
// Single-use, single-thread.  What it runs writes to the buffers, which must hold nothing yet.
class Tuner {
 public:
  // `device`, `context`, `segments`, `timeline`: borrowed.  `context.buffers` must have been made
  // under a tuning as wide as WidestTuning.
  Tuner(const vulkan::Device& device, const RecordingContext& context,
        const std::vector<Segment>& segments, vulkan::Timeline& timeline);

  // Changes the kernels' tuning; the settings that were reached within the budget, and how each
  // value did.  UNAVAILABLE: the device is lost.
  absl::Status Tune(const TuneBudget& budget, absl::FunctionRef<void(double)> progress,
                    TuningTable& table);

 private:
  // Seconds of a step of `rows`.  Fails where the device's driver refuses a pipeline.
  absl::StatusOr<double> Measure(uint32_t rows);
  // Times of the rows under the tuning in force, remembered until it changes.
  absl::StatusOr<std::map<uint32_t, double>> Baseline(const std::vector<uint32_t>& rows);
  absl::Status Try(const TuningSetting& setting, TuningTable& table);
  absl::Status RecordStep(uint32_t rows, vulkan::Recorder& recorder);
  bool IsSpent() const;

  const vulkan::Device& device_;          // Borrowed.
  const RecordingContext& context_;       // Borrowed.
  const std::vector<Segment>& segments_;  // Borrowed.
  vulkan::Timeline& timeline_;            // Borrowed.
  Tuning& tuning_;                        // the kernels'
  uint32_t num_layers_ = 0;               // of a step
  TuneBudget budget_;
  absl::Duration device_spent_;
  absl::Time begun_;
  std::map<uint32_t, double> baseline_;
};

// The largest buffers that any choice of the settings needs.
Tuning WidestTuning(const vulkan::DeviceInfo& info, const Tuning& tuning);

}  // namespace tandem::gpu
