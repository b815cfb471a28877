#include "services/npu_worker/npu_worker.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/device_access.h"

namespace tandem::npu {
absl::StatusOr<std::unique_ptr<NpuWorker>> NpuWorker::Create(Options options) {
  std::unique_ptr<NpuWorker> worker(new NpuWorker(std::move(options)));
  TANDEM_ASSIGN_OR_RETURN(worker->package_, KernelPackage::Read(worker->options_.kernel_folder));
  TANDEM_RETURN_IF_ERROR(worker->OpenDevice());
  worker->Describe();
  return worker;
}

absl::Status NpuWorker::OpenDevice() {
  for (auto& plan : plans_) plan.reset();
  health_test_.reset();
  device_.reset();
  TANDEM_ASSIGN_OR_RETURN(device_, NpuDevice::Open({.index = options_.device_index,
                                                    .xclbin_path = package_.xclbin_path,
                                                    .kernel_name = package_.kernel_name}));
  TANDEM_RETURN_IF_ERROR(TestPackage(*device_, package_, options_.run_timeout));
  TANDEM_ASSIGN_OR_RETURN(health_test_, SelfTest::Create(*device_, package_.attend.front()));
  return absl::OkStatus();
}

void NpuWorker::Describe() {
  const bool emulated = IsEmulated() || package_.emulated;
  description_.name = options_.name;
  description_.device =
      emulated ? absl::StrFormat("NPU emulated on the host below %s", NpuDevice::XrtVersion())
               : absl::StrFormat("%s, kernels for %s, %s", device_->name(), package_.device,
                                 NpuDevice::XrtVersion());
  description_.kind = DeviceKind::kNpu;
  description_.emulated = emulated;
  description_.takes_pictures = true;
  description_.stages = {StageKind::kAttend};
  if (!package_.out.empty()) description_.stages.push_back(StageKind::kOut);
  description_.weight_dtypes = package_.WeightDtypes();
  description_.head_dims = package_.HeadDims();
  description_.max_rows = options_.max_rows;
  // An NPU shares the host's memory.
  const HostMemory memory = ReadHostMemory();
  description_.memory_bytes = memory.total_bytes;
  description_.memory_available_bytes = memory.available_bytes;
}

absl::StatusOr<LoadReport> NpuWorker::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  std::unique_ptr<NpuPlan>& plan = plans_[load.plan];
  plan.reset();
  if (device_ == nullptr || !lost_.ok()) {
    progress(0.0, "opening the NPU again");
    lost_ = OpenDevice();
    TANDEM_RETURN_IF_ERROR(lost_);
  }
  TANDEM_ASSIGN_OR_RETURN(plan, NpuPlan::Create(*device_, package_, std::move(load), progress));
  return plan->report();
}

absl::StatusOr<SegmentResult> NpuWorker::Run(const SegmentRun& run) {
  TANDEM_RETURN_IF_ERROR(lost_);
  NpuPlan* const plan = plans_[run.plan].get();
  if (plan == nullptr) return absl::FailedPreconditionError("no plan is loaded on the NPU");
  auto result = plan->Run(run, options_.run_timeout);
  if (absl::IsUnavailable(result.status())) lost_ = result.status();
  return result;
}

absl::Status NpuWorker::CheckHealth() {
  TANDEM_RETURN_IF_ERROR(lost_);
  if (health_test_ == nullptr) return absl::UnavailableError("the NPU is not open");
  const absl::Status status = health_test_->Run(options_.run_timeout);
  if (!status.ok()) lost_ = absl::UnavailableError(std::string(status.message()));
  return status;
}

}  // namespace tandem::npu
