// A plan as GpuWorker has it on its device, from Load to Unload: a decoder's part (LoadedModel) or
// an encoder (LoadedVision).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

inline constexpr absl::Duration kSoftwareStepTimeout = absl::Minutes(15);

// Single-thread.
class DevicePlan {
 public:
  // Where plans share the device, each has at most so many submissions on its queue: one that runs
  // and one that follows.  The other submissions of a long step are held back, so that another
  // plan's step waits for few of them.
  static constexpr size_t kMostQueued = 2;

  // Longer than any submission; callers have deadlines of their own.  A software device does not
  // hang: there a step of a large model with a picture takes minutes.
  static absl::Duration StepTimeout(const vulkan::Timeline& timeline) {
    return timeline.device().info().software() ? kSoftwareStepTimeout : absl::Minutes(2);
  }
  static constexpr uint64_t kStagingBytes = uint64_t{64} << 20;  // of uploads at load

  // Waits for all submitted segments.
  virtual ~DevicePlan() = default;
  DevicePlan(const DevicePlan&) = delete;
  DevicePlan& operator=(const DevicePlan&) = delete;

  virtual LoadReport report() const = 0;
  // Whether other plans use the device.  REQUIRES idle().
  virtual void Share(bool shared) = 0;
  // As Worker's.  Advance and Wait REQUIRE a submitted segment.
  virtual absl::Status Submit(const SegmentRun& run) = 0;
  virtual void MasksReady() {}
  virtual absl::StatusOr<bool> Advance() = 0;
  virtual bool HoldsBack() const = 0;
  virtual absl::StatusOr<SegmentResult> Wait() = 0;
  virtual bool idle() const = 0;
  // As Worker's.  REQUIRES idle().
  virtual absl::Status CopyKv(const KvCopy& copy) = 0;
  // Queues the submissions for which there is room now.
  virtual void QueueDue() = 0;

 protected:
  DevicePlan() = default;
};

}  // namespace tandem::gpu
