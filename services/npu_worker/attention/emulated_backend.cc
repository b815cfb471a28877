#include "services/npu_worker/attention/emulated_backend.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/npu_plan.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<Backend>> EmulatedBackend::Create(const std::string& kernel_folder,
                                                                 uint32_t device_index) {
  TANDEM_ASSIGN_OR_RETURN(KernelPackage package, KernelPackage::Read(kernel_folder));
  return std::unique_ptr<Backend>(new EmulatedBackend(std::move(package), device_index));
}

absl::Status EmulatedBackend::Open(absl::Duration timeout) {
  health_test_.reset();
  npu_.reset();
  TANDEM_ASSIGN_OR_RETURN(
      npu_, NpuKernel::Open({.index = device_index_, .xclbin_path = package_.xclbin_path},
                            package_.kernel_name));
  TANDEM_RETURN_IF_ERROR(TestPackage(*npu_, package_, timeout));
  TANDEM_ASSIGN_OR_RETURN(health_test_, SelfTest::Create(*npu_, package_.attend.front()));
  return absl::OkStatus();
}

absl::Status EmulatedBackend::Test(absl::Duration timeout) { return health_test_->Run(timeout); }

void EmulatedBackend::Describe(WorkerDescription& description) const {
  description.emulated = true;
  description.device =
      absl::StrFormat("NPU emulated on the host below %s", NpuContext::XrtVersion());
  description.takes_pictures = true;
  description.stages = {StageKind::kAttend};
  if (!package_.out.empty()) description.stages.push_back(StageKind::kOut);
  description.weight_dtypes = package_.WeightDtypes();
  description.head_dims = package_.HeadDims();
}

absl::StatusOr<std::unique_ptr<BackendPlan>> EmulatedBackend::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<BackendPlan> plan,
                          NpuPlan::Create(*npu_, package_, std::move(load), progress));
  return plan;
}

}  // namespace tandem::npu
