// The self-test of an array's row functions (operator_test.h): each of them over a few rows for every core of the
// array, in one command.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/operators/operator_test.h"
#include "services/npu_worker/operators/row_command.h"
#include "services/npu_worker/operators/stage_commands.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

class RowSelfTest final : public OperatorTest {
 public:
  // `kernel`: the operator's; shared with plans.  `op`: borrowed; must outlive this.
  static absl::StatusOr<std::unique_ptr<RowSelfTest>> Create(std::shared_ptr<NpuKernel> kernel,
                                                             const NpuOperator& op);

  absl::Status Run(absl::Duration timeout) override;

  // As GemmSelfTest's.
  absl::Status Begin();
  CommandUse use() const { return {command_.get(), &weights_}; }
  absl::Status End();
  uint32_t num_rows() const;

 private:
  RowSelfTest(std::shared_ptr<NpuKernel> kernel, const NpuOperator& op)
      : kernel_(std::move(kernel)), op_(op) {}
  absl::Status Fill();
  absl::Status Check() const;
  absl::Status CheckJob(const RowJob& job) const;
  absl::Status Failure(const std::string& what) const;

  std::shared_ptr<NpuKernel> kernel_;
  const NpuOperator& op_;  // Borrowed.
  NpuBuffer first_, second_, output_, weights_;
  std::vector<RowJob> jobs_;
  std::unique_ptr<RowCommand> command_;
  StageCommands commands_;
};

}  // namespace tandem::npu
