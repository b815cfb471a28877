// An NPU's array, driven by control code, as the backend of an NPU worker.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/npu_worker/backend/backend.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/operator_test.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"

namespace tandem::npu {

// Each operator has an xclbin and so a hardware context of its own, which is open while a plan uses it: an
// NPU has few, and the driver shares them among processes.  Where there is no plan, one is open for the
// repeated self-test.
class ArrayBackend final : public Backend {
 public:
  // Reads the package.  Errors of OperatorPackage::Read; FAILED_PRECONDITION: it has no attention.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(const std::string& package_folder,
                                                         uint32_t device_index);

  absl::Status Open(absl::Duration timeout) override;
  absl::Status Test(absl::Duration timeout) override;
  void Describe(WorkerDescription& description) const override;
  absl::StatusOr<std::unique_ptr<BackendPlan>> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;
  void CloseUnused() override;

 private:
  ArrayBackend(OperatorPackage package, uint32_t device_index)
      : package_(std::move(package)), device_index_(device_index) {}
  absl::StatusOr<std::unique_ptr<OperatorTest>> MakeTest(const NpuOperator& op);
  // The operator's context, opened where it is not.
  absl::StatusOr<std::shared_ptr<NpuDevice>> ContextOf(const NpuOperator& op);

  absl::StatusOr<OpenedOperator> OpenOperator(const NpuOperator& op);
  // The GEMMs that the load's matrices take; none if the package has none.  Errors as PartsOf and
  // NpuDevice::Open.
  absl::StatusOr<OpenedGemms> OpenGemms(const ModelLoad& load);

  const OperatorPackage package_;
  const uint32_t device_index_;
  std::string device_name_;
  std::map<const NpuOperator*, std::weak_ptr<NpuDevice>> contexts_;
  // Of the operators that plans use; of one operator where there is no plan.
  std::map<const NpuOperator*, std::unique_ptr<OperatorTest>> health_tests_;
};

}  // namespace tandem::npu
