// What computes an NPU worker's stages: the array of an NPU through control code (operators/), or the
// emulated NPU's kernels (attention/).  NpuWorker is the same above both.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/worker/worker.h"

namespace tandem::npu {

// A plan's segments, made ready.  Single-thread.
class BackendPlan {
 public:
  virtual ~BackendPlan() = default;
  virtual LoadReport report() const = 0;
  // As BlockingWorker::Run.
  virtual absl::StatusOr<SegmentResult> Run(const SegmentRun& run, absl::Duration timeout) = 0;
  // As Worker::CopyKv.
  virtual absl::Status CopyKv(const KvCopy& copy) = 0;
};

// Single-thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Opens the device, or opens it again, and asks each operator for a known answer.  REQUIRES that no
  // plan is left.  DATA_LOSS: an answer is missing, wrong or outside its place; UNAVAILABLE: none in
  // time; otherwise as NpuKernel::Open.
  virtual absl::Status Open(absl::Duration timeout) = 0;
  // Asks those that plans use again, and one where there is no plan.  REQUIRES Open.
  virtual absl::Status Test(absl::Duration timeout) = 0;
  // Fills in the device, what it is emulated by, stages and formats.  REQUIRES Open.
  virtual void Describe(WorkerDescription& description) const = 0;
  // FAILED_PRECONDITION: a stage, head size, length or weight format without a kernel;
  // RESOURCE_EXHAUSTED: memory, with the amounts.  The plan must not outlive this.
  virtual absl::StatusOr<std::unique_ptr<BackendPlan>> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) = 0;
  // Closes contexts that no plan uses any more.
  virtual void CloseUnused() {}
};

}  // namespace tandem::npu
