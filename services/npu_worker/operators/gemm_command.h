// A GEMM over a range of a matrix's outputs as a command of an array: control code, made before the
// first step.
//
//   output[r, n] = sum_k activations[r, k] * weights[n, k]
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/operators/array_weights.h"
#include "services/npu_worker/operators/gemm_rows.h"
#include "services/npu_worker/operators/operator_command.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// The output is filled up to a multiple of 64 outputs.  Single-thread.
class GemmCommand final : public OperatorCommand {
 public:
  // `kernel`: the operator's.  `kernel`, `op` and `rows`: borrowed; must outlive this.
  // REQUIRES op.weight_dtype == part.format.  Errors as OperatorCommand::Prepare.
  static absl::StatusOr<std::unique_ptr<GemmCommand>> Create(NpuKernel& kernel,
                                                             const NpuOperator& op,
                                                             const GemmRows& rows,
                                                             const MatrixPart& part);

  // A zeroed buffer for the weights of the part (array_weights.h).  Hand it over when it is filled.
  // RESOURCE_EXHAUSTED: memory.
  absl::StatusOr<NpuBuffer> MakeWeights();

 private:
  GemmCommand(NpuKernel& kernel, const NpuOperator& op, const GemmRows& rows,
              const MatrixPart& part)
      : OperatorCommand(kernel, op, rows.max_rows()), rows_(rows), part_(part) {}
  uint32_t PaddedRows(uint32_t num_rows) const override { return GemmPaddedRows(num_rows); }
  absl::StatusOr<Transaction> Build(uint32_t first_row, uint32_t num_rows) const override;
  std::vector<const NpuBuffer*> Arguments(const NpuBuffer* weights) const override;

  const GemmRows& rows_;  // Borrowed.
  const MatrixPart part_;
};

}  // namespace tandem::npu
