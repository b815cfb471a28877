// Row functions as a command of an array: one or several, each over all rows, by control code that is
// made before or in the first step with as many rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/npu_worker/control/rows.h"
#include "services/npu_worker/operators/operator_command.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// Single-thread.
class RowCommand final : public OperatorCommand {
 public:
  struct Options {
    uint32_t max_rows = 0;
    // In turn.  Their offsets are of row 0; array, parameters, rows and argument numbers are set here.
    std::vector<RowJob> jobs;
  };
  // What the operands are offsets into: buffers of this or another context of the device, which hold
  // `max_rows` filled up to a multiple of 4.  Borrowed; must outlive this.
  struct Buffers {
    const NpuBuffer* first = nullptr;
    const NpuBuffer* second = nullptr;  // nullptr: no job has one
    const NpuBuffer* output = nullptr;
  };

  // `kernel`: the operator's.  `kernel` and `op`: borrowed; must outlive this.
  // Errors as BuildRows and OperatorCommand::Prepare.
  static absl::StatusOr<std::unique_ptr<RowCommand>> Create(NpuKernel& kernel,
                                                            const NpuOperator& op, Options options,
                                                            const Buffers& buffers);

  // A zeroed buffer for the operator's argument of that name.
  static absl::StatusOr<NpuBuffer> MakeBuffer(NpuKernel& kernel, const NpuOperator& op,
                                              std::string_view argument, uint64_t bytes);

 private:
  RowCommand(NpuKernel& kernel, const NpuOperator& op, Options options, const Buffers& buffers)
      : OperatorCommand(kernel, op, options.max_rows),
        jobs_(std::move(options.jobs)),
        buffers_(buffers) {}
  uint32_t PaddedRows(uint32_t num_rows) const override { return PaddedJobRows(num_rows); }
  absl::StatusOr<Transaction> Build(uint32_t first_row, uint32_t num_rows) const override;
  std::vector<const NpuBuffer*> Arguments(const NpuBuffer* weights) const override;

  const std::vector<RowJob> jobs_;
  const Buffers buffers_;
};

}  // namespace tandem::npu
