// A GEMM over a range of a matrix's outputs as a command of an array: control code, made before the
// first step.
//
//   output[r, n] = sum_k activations[r, k] * weights[n, k]
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/operators/array_weights.h"
#include "services/npu_worker/operators/command_code.h"
#include "services/npu_worker/operators/gemm_rows.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Single-thread.
class GemmCommands {
 public:
  // `device`: opened with the operator's xclbin.  `device`, `op` and `rows`: borrowed; must outlive this.
  // REQUIRES op.weight_dtype == part.format.  INVALID_ARGUMENT: the xclbin connects its arguments to other
  // memory groups than the package says, or sizes that control code cannot address; RESOURCE_EXHAUSTED:
  // the instruction heap.
  static absl::StatusOr<std::unique_ptr<GemmCommands>> Create(NpuDevice& device,
                                                              const NpuOperator& op,
                                                              const GemmRows& rows,
                                                              const MatrixPart& part);

  // A zeroed buffer for the weights of the part (array_weights.h).  Hand it over when it is filled.
  // RESOURCE_EXHAUSTED: memory.
  absl::StatusOr<NpuBuffer> MakeWeights();

  // Computes the first `num_rows` rows, and returns nanoseconds on the device, as the host sees them.
  // Activations must be the device's already, and the output stays there.  It is filled up to a multiple of
  // 64 outputs.  Errors as NpuRun::Execute.  REQUIRES 1 <= num_rows <= rows.max_rows().
  absl::StatusOr<int64_t> Execute(const NpuBuffer& weights, uint32_t num_rows,
                                  absl::Duration timeout);

 private:
  GemmCommands(NpuDevice& device, const NpuOperator& op, const GemmRows& rows,
               const MatrixPart& part)
      : device_(device), op_(op), rows_(rows), part_(part) {}
  // In the order of the kernel's arguments.
  std::array<const NpuBuffer*, 3> Arguments(const NpuBuffer& weights) const;
  // For `num_rows` rows, counted from `first_row`.
  absl::StatusOr<Transaction> Build(uint32_t first_row, uint32_t num_rows) const;
  absl::StatusOr<int64_t> ExecuteRows(const NpuBuffer& weights, uint32_t first_row,
                                      uint32_t num_rows, absl::Duration timeout);

  NpuDevice& device_;  // Borrowed, as the following.
  const NpuOperator& op_;
  const GemmRows& rows_;
  const MatrixPart part_;
  std::optional<CommandCode> code_;  // set by Create, as the following
  std::optional<NpuRun> run_;
};

}  // namespace tandem::npu
