// A known answer, asked of the device before it may serve.
//
// XRT's noop device, a kernel package for another NPU and a broken driver all report success;
// only what lies in the output tells.  So the output is filled with a canary, every area is
// surrounded by guards, and the answer is compared with one computed here in float64.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/attention/kernel_package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// Attention of one head size (backend/known_attention.h).  Single-thread.
class SelfTest {
 public:
  // Makes the buffers and the command.  `device`: Borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<SelfTest>> Create(NpuKernel& npu,
                                                          const AttendKernel& kernel);

  // DATA_LOSS: the device's answer is missing, wrong or outside its place, and how.
  // UNAVAILABLE: no answer in time.
  absl::Status Run(absl::Duration timeout);

 private:
  SelfTest() = default;
  void Fill();
  absl::Status Check() const;

  uint32_t head_dim_ = 0;
  NpuCode code_;
  NpuBuffer step_;
  NpuBuffer layer_;
  NpuBuffer exchange_;
  NpuBuffer kv_;
  std::vector<NpuRun> run_;  // one
};

// Runs a self-test for every head size of the package, shortest bucket first.
absl::Status TestPackage(NpuKernel& npu, const KernelPackage& package, absl::Duration timeout);

}  // namespace tandem::npu
