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
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// The operators of one xclbin share its hardware context, which is open while a plan uses one of them: an NPU
// has few contexts, and the driver shares them among processes.  Where there is no plan, one is open for
// the repeated self-test.
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
  // Of a list over kernels of one context, where the package's stages have such lists.
  absl::Status TestList(absl::Duration timeout);
  // The operator's kernel in the context of its xclbin, both opened where they are not.
  absl::StatusOr<std::shared_ptr<NpuKernel>> KernelOf(const NpuOperator& op);

  absl::StatusOr<OpenedOperator> OpenOperator(const NpuOperator& op);
  // The GEMMs that the load's matrices take; none if the package has none.  Errors as PartsOf and
  // NpuKernel::Open.
  absl::StatusOr<OpenedGemms> OpenGemms(const ModelLoad& load);

  const OperatorPackage package_;
  const uint32_t device_index_;
  std::string device_name_;
  std::map<std::string, std::weak_ptr<NpuContext>> contexts_;  // by path of the xclbin
  std::map<const NpuOperator*, std::weak_ptr<NpuKernel>> kernels_;
  // Of the operators that plans use; of one operator where there is no plan.
  std::map<const NpuOperator*, std::unique_ptr<OperatorTest>> health_tests_;
};

}  // namespace tandem::npu
