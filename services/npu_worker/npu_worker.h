// The NPU as a Worker, through XRT: the stages of a layer on an array, or Attend and Out on the emulated NPU.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/worker/worker.h"
#include "services/npu_worker/backend/backend.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {

class NpuWorker final : public BlockingWorker {
 public:
  struct Options {
    std::string name = "npu0";
    std::string kernel_folder;
    uint32_t device_index = 0;
    uint32_t max_rows = 512;
    absl::Duration run_timeout = kRunTimeout;  // of a stage on an array, else of a segment
    // Called when a self-test after Create fails with DATA_LOSS, on the thread of Load or CheckHealth; may
    // be empty.
    std::function<void(const absl::Status&)> on_wrong_answers;
  };

  // Reads the package in kernel_folder, opens the device and tests it.  Where XRT emulates, the package
  // is the emulated NPU's (attention/), otherwise one of operators (package/).  Errors of their Read,
  // and of Backend::Open.
  static absl::StatusOr<std::unique_ptr<NpuWorker>> Create(Options options);

  const WorkerDescription& description() const override { return description_; }

  // After a lost device, opens and tests it again first.
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;
  void Unload(uint32_t plan) override;
  absl::Status CopyKv(uint32_t plan, const KvCopy& copy) override;
  // Asks the known answer again, of the operators in use; this keeps an idle NPU awake as well.  After a
  // lost device: opens and tests it again, unless a plan is left or answers were wrong; then says why.
  absl::Status CheckHealth() override;

 private:
  explicit NpuWorker(Options options) : options_(std::move(options)) {}
  // A time-out, a refused start, or an array's command that ends with an error makes every later Run and
  // CopyKv UNAVAILABLE, until a plan is loaded.
  absl::StatusOr<SegmentResult> Run(const SegmentRun& run) override;
  // Drops all plans, then opens the device and tests it.
  absl::Status OpenDevice();
  // The plan, if the device is there.
  absl::StatusOr<BackendPlan*> FindPlan(uint32_t plan) const;
  // Returns `status` of a self-test; tells of wrong answers.
  absl::Status Tested(absl::Status status);
  void Describe();

  Options options_;
  WorkerDescription description_;
  absl::Status lost_ = absl::OkStatus();  // why the device must be opened again
  bool gave_wrong_answers_ = false;       // in a self-test: it is not tested until it is right
  // Destroyed in the reverse order: plans go before it.
  std::unique_ptr<Backend> backend_;
  std::array<std::unique_ptr<BackendPlan>, kMaxPlans> plans_;
};

}  // namespace tandem::npu
