// The emulated NPU's kernels as the backend of an NPU worker: float16, and block tables that the device
// reads.  No NPU can run such kernels; operators/ has what an NPU runs.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/npu_worker/attention/kernel_package.h"
#include "services/npu_worker/attention/self_test.h"
#include "services/npu_worker/backend/backend.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

class EmulatedBackend final : public Backend {
 public:
  // Errors of KernelPackage::Read.
  static absl::StatusOr<std::unique_ptr<Backend>> Create(const std::string& kernel_folder,
                                                         uint32_t device_index);

  absl::Status Open(absl::Duration timeout) override;
  absl::Status Test(absl::Duration timeout) override;
  void Describe(WorkerDescription& description) const override;
  absl::StatusOr<std::unique_ptr<BackendPlan>> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;

 private:
  EmulatedBackend(KernelPackage package, uint32_t device_index)
      : package_(std::move(package)), device_index_(device_index) {}

  const KernelPackage package_;
  const uint32_t device_index_;
  // Destroyed in the reverse order: what uses the device goes before it.
  std::shared_ptr<NpuKernel> npu_;  // Shared with none.
  std::unique_ptr<SelfTest> health_test_;
};

}  // namespace tandem::npu
