// Measures how long recorded commands take on the device.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/gpu_worker/stages/stage_recorder.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/device.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// How often commands run.  A first run, for what a driver does late, comes on top.
struct TimedRuns {
  int least = 1;
  int most = 1;
  absl::Duration run_for;  // more runs than the least until they have taken this long
};

struct RecordedTime {
  double seconds = 0;    // of the fastest run; by timestamps where the device has them
  absl::Duration spent;  // of the device, all runs together
};

// Records with `record` and runs that.  Clears `context.phases`.  UNAVAILABLE: the device is lost.
absl::StatusOr<RecordedTime> TimeRecording(
    const vulkan::Device& device, const RecordingContext& context, vulkan::Timeline& timeline,
    const TimedRuns& runs, absl::FunctionRef<absl::Status(vulkan::Recorder&)> record);

}  // namespace tandem::gpu
