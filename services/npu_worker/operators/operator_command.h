// A command of an operator over rows of a step: control code, and the operator's data buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/npu_worker/operators/command_code.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// Rows of one command: its control code stays short, and it ends long before the driver gives it up.
inline constexpr uint32_t kCommandRows = 512;

// StageCommands executes it.  Single-thread.
class OperatorCommand {
 public:
  virtual ~OperatorCommand() = default;
  OperatorCommand(const OperatorCommand&) = delete;
  OperatorCommand& operator=(const OperatorCommand&) = delete;

  struct Operands {
    const NpuCode* code = nullptr;
    std::vector<const NpuBuffer*> data;  // in the order of the kernel's arguments
  };

  NpuKernel& kernel() const { return kernel_; }
  uint32_t max_rows() const { return max_rows_; }

  // Loads the control code of `num_rows` rows from `first_row` on: no command that uses it may be under way.
  // `weights`: nullptr if the operator takes none.  Errors of Build and of NpuCode::Load.
  // REQUIRES first_row a multiple of kCommandRows, 1 <= num_rows <= kCommandRows.
  absl::StatusOr<Operands> Load(const NpuBuffer* weights, uint32_t first_row, uint32_t num_rows);

 protected:
  // `kernel`: the operator's.  `kernel` and `op`: borrowed; must outlive this.
  OperatorCommand(NpuKernel& kernel, const NpuOperator& op, uint32_t max_rows)
      : kernel_(kernel), op_(op), max_rows_(max_rows) {}
  // Makes room for control code.  `longest`: as many rows as take the longest control code.
  // INVALID_ARGUMENT: as Build, and the xclbin connects the operator's arguments to other memory groups than
  // the package says; RESOURCE_EXHAUSTED and UNIMPLEMENTED: as NpuKernel::MakeCode.
  absl::Status Prepare(uint32_t longest);

  const NpuOperator& op() const { return op_; }

 private:
  // Rows filled up, so that few codes are made.
  virtual uint32_t PaddedRows(uint32_t num_rows) const = 0;
  // INVALID_ARGUMENT: the rows cannot be addressed.
  virtual absl::StatusOr<Transaction> Build(uint32_t first_row, uint32_t num_rows) const = 0;
  virtual std::vector<const NpuBuffer*> Arguments(const NpuBuffer* weights) const = 0;

  NpuKernel& kernel_;      // Borrowed.
  const NpuOperator& op_;  // Borrowed.
  const uint32_t max_rows_;
  std::optional<CommandCode> code_;  // set by Prepare
};

}  // namespace tandem::npu
