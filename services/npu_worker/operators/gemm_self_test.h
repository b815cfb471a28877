// The self-test of an array's GEMM: a tile of outputs for each column, the last cut short, over nine tiles of
// inputs, for a few rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/operators/gemm_command.h"
#include "services/npu_worker/operators/operator_test.h"
#include "services/npu_worker/operators/stage_commands.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

class GemmSelfTest final : public OperatorTest {
 public:
  // `kernel`: the operator's; shared with plans.  `op`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<GemmSelfTest>> Create(std::shared_ptr<NpuKernel> kernel,
                                                              const NpuOperator& op,
                                                              uint32_t num_rows = 5);

  absl::Status Run(absl::Duration timeout) override;

  // The parts of Run, for a list with other commands: what comes before the command, it, and what comes after.
  absl::Status Begin();
  CommandUse use() const { return {command_.get(), &weights_}; }
  absl::Status End();

 private:
  GemmSelfTest(std::shared_ptr<NpuKernel> kernel, const NpuOperator& op, uint32_t num_rows)
      : kernel_(std::move(kernel)), op_(op), num_rows_(num_rows) {}
  uint32_t num_outputs() const;
  void FillWeights();
  void Expect();
  absl::Status Check();
  absl::Status Failure(const std::string& what) const;

  std::shared_ptr<NpuKernel> kernel_;
  const NpuOperator& op_;  // Borrowed.
  const uint32_t num_rows_;
  GemmRows rows_;
  NpuBuffer weights_;
  std::unique_ptr<GemmCommand> command_;
  StageCommands commands_;
  std::vector<double> expected_;  // [rows][num_outputs()]
};

}  // namespace tandem::npu
