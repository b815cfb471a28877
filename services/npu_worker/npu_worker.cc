#include "services/npu_worker/npu_worker.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/emulated_backend.h"
#include "services/npu_worker/operators/array_backend.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<NpuWorker>> NpuWorker::Create(Options options) {
  std::unique_ptr<NpuWorker> worker(new NpuWorker(std::move(options)));
  const Options& of_worker = worker->options_;
  const auto make = IsEmulated() ? EmulatedBackend::Create : ArrayBackend::Create;
  TANDEM_ASSIGN_OR_RETURN(worker->backend_, make(of_worker.kernel_folder, of_worker.device_index));
  TANDEM_RETURN_IF_ERROR(worker->OpenDevice());
  worker->Describe();
  return worker;
}

absl::Status NpuWorker::OpenDevice() {
  for (auto& plan : plans_) plan.reset();
  return backend_->Open(options_.run_timeout);
}

absl::Status NpuWorker::Tested(absl::Status status) {
  if (!absl::IsDataLoss(status)) return status;
  gave_wrong_answers_ = true;
  if (options_.on_wrong_answers) options_.on_wrong_answers(status);
  return status;
}

void NpuWorker::Describe() {
  description_.name = options_.name;
  description_.kind = DeviceKind::kNpu;
  description_.max_rows = options_.max_rows;
  description_.copies_kv = true;
  backend_->Describe(description_);
  // An NPU shares the host's memory.
  const HostMemory memory = ReadHostMemory();
  description_.memory_bytes = memory.total_bytes;
  description_.memory_available_bytes = memory.available_bytes;
}

absl::StatusOr<LoadReport> NpuWorker::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  std::unique_ptr<BackendPlan>& plan = plans_[load.plan];
  Unload(load.plan);
  if (!lost_.ok()) {
    progress(0.0, "opening the NPU again");
    lost_ = Tested(OpenDevice());
    TANDEM_RETURN_IF_ERROR(lost_);
  }
  TANDEM_ASSIGN_OR_RETURN(plan, backend_->Load(std::move(load), progress));
  return plan->report();
}

void NpuWorker::Unload(uint32_t plan) {
  plans_[plan].reset();
  backend_->CloseUnused();
}

absl::StatusOr<BackendPlan*> NpuWorker::FindPlan(uint32_t plan) const {
  TANDEM_RETURN_IF_ERROR(lost_);
  if (plans_[plan] == nullptr) return absl::FailedPreconditionError("no plan is loaded on the NPU");
  return plans_[plan].get();
}

absl::StatusOr<SegmentResult> NpuWorker::Run(const SegmentRun& run) {
  TANDEM_ASSIGN_OR_RETURN(BackendPlan* const plan, FindPlan(run.plan));
  auto result = plan->Run(run, options_.run_timeout);
  if (absl::IsUnavailable(result.status())) lost_ = result.status();
  return result;
}

absl::Status NpuWorker::CopyKv(uint32_t plan_idx, const KvCopy& copy) {
  TANDEM_ASSIGN_OR_RETURN(BackendPlan* const plan, FindPlan(plan_idx));
  const absl::Status status = plan->CopyKv(copy);
  if (absl::IsUnavailable(status)) lost_ = status;
  return status;
}

absl::Status NpuWorker::CheckHealth() {
  if (!lost_.ok()) {
    // A load opens the device again, and none comes before the first check has passed.
    const bool has_plan =
        std::ranges::any_of(plans_, [](const auto& plan) { return plan != nullptr; });
    if (has_plan || gave_wrong_answers_) return lost_;
    lost_ = Tested(OpenDevice());
    return lost_;
  }
  const absl::Status status = Tested(backend_->Test(options_.run_timeout));
  if (!status.ok()) lost_ = absl::UnavailableError(std::string(status.message()));
  return status;
}

}  // namespace tandem::npu
