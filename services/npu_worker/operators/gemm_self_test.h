// The self-test of an array's GEMM: a tile of outputs for each column, the last cut short, over nine tiles of
// inputs, for a few rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/operators/gemm_commands.h"
#include "services/npu_worker/operators/operator_test.h"
#include "services/npu_worker/xrt/npu_device.h"

namespace tandem::npu {

class GemmSelfTest final : public OperatorTest {
 public:
  // `device`: opened with the operator's xclbin; shared with plans.  `op`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<GemmSelfTest>> Create(std::shared_ptr<NpuDevice> device,
                                                              const NpuOperator& op);

  absl::Status Run(absl::Duration timeout) override;

 private:
  GemmSelfTest(std::shared_ptr<NpuDevice> device, const NpuOperator& op)
      : device_(std::move(device)), op_(op) {}
  uint32_t num_outputs() const;
  void FillWeights();
  void Expect();
  absl::Status Check();
  absl::Status Failure(const std::string& what) const;

  std::shared_ptr<NpuDevice> device_;
  const NpuOperator& op_;  // Borrowed.
  GemmRows rows_;
  NpuBuffer weights_;
  std::unique_ptr<GemmCommands> commands_;
  std::vector<double> expected_;  // [rows][num_outputs()]
};

}  // namespace tandem::npu
