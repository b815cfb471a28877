#include "services/npu_worker/operators/array_backend.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/operators/array_plan.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<Backend>> ArrayBackend::Create(const std::string& package_folder,
                                                              uint32_t device_index) {
  TANDEM_ASSIGN_OR_RETURN(OperatorPackage package, OperatorPackage::Read(package_folder));
  if (package.HeadDims().empty()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the package %s has no attention, and this worker runs no other operator", package_folder));
  }
  return std::unique_ptr<Backend>(new ArrayBackend(std::move(package), device_index));
}

absl::StatusOr<std::shared_ptr<NpuDevice>> ArrayBackend::ContextOf(const NpuOperator& op) {
  std::weak_ptr<NpuDevice>& known = contexts_[&op];
  std::shared_ptr<NpuDevice> device = known.lock();
  if (device != nullptr) return device;
  TANDEM_ASSIGN_OR_RETURN(device, NpuDevice::Open({.index = device_index_,
                                                   .xclbin_path = op.xclbin_path,
                                                   .kernel_name = op.kernel_name}));
  known = device;
  return device;
}

absl::Status ArrayBackend::Open(absl::Duration timeout) {
  health_test_.reset();
  TANDEM_ASSIGN_OR_RETURN(device_name_, NpuDevice::NameOf(device_index_));
  TANDEM_RETURN_IF_ERROR(package_.CheckDevice(device_name_));
  std::unique_ptr<ArraySelfTest> first;
  for (const NpuOperator& op : package_.operators) {
    if (op.control != ControlKind::kAttention) continue;
    TANDEM_ASSIGN_OR_RETURN(auto device, ContextOf(op));
    TANDEM_ASSIGN_OR_RETURN(auto test, ArraySelfTest::Create(std::move(device), op));
    TANDEM_RETURN_IF_ERROR(test->Run(timeout));
    if (first == nullptr) first = std::move(test);
  }
  health_test_ = std::move(first);
  return absl::OkStatus();
}

absl::Status ArrayBackend::Test(absl::Duration timeout) { return health_test_->Run(timeout); }

void ArrayBackend::Describe(WorkerDescription& description) const {
  description.emulated = package_.emulated;
  description.device =
      package_.emulated
          ? absl::StrFormat("NPU emulated on the host below %s", NpuDevice::XrtVersion())
          : absl::StrFormat("%s, operators for %s, %s", device_name_, package_.Devices(),
                            NpuDevice::XrtVersion());
  description.takes_pictures = true;
  description.stages = {StageKind::kAttend};
  description.head_dims = package_.HeadDims();
}

absl::StatusOr<std::unique_ptr<BackendPlan>> ArrayBackend::Load(
    ModelLoad load, const std::function<void(double, std::string_view)>& progress) {
  TANDEM_ASSIGN_OR_RETURN(const NpuOperator* op,
                          package_.FindAttention(load.weights->config().head_dim));
  TANDEM_ASSIGN_OR_RETURN(auto device, ContextOf(*op));
  TANDEM_ASSIGN_OR_RETURN(auto plan, ArrayPlan::Create(device, *op, std::move(load), progress));
  TANDEM_ASSIGN_OR_RETURN(health_test_, ArraySelfTest::Create(std::move(device), *op));
  return plan;
}

}  // namespace tandem::npu
