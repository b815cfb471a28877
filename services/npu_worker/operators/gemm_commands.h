// A GEMM over bfloat16 weights as a command of an array: buffers for rows and control code, made
// before the first step.
//
//   output[r, n] = sum_k activations[r, k] * weights[n, k]
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/weights/weight_set.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/operators/command_code.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Single-thread.
class GemmCommands {
 public:
  struct Options {
    uint32_t max_rows = 0;
    uint32_t num_outputs = 0;
    uint32_t num_inputs = 0;
    uint32_t output_stride =
        0;  // numbers from one row to the next, if that is more than it must be
    uint32_t guard_rows =
        0;  // of the output, before its first row and behind its last: for a self-test
  };

  // `device`: opened with the operator's xclbin.  `device` and `op`: borrowed; must outlive this.
  // REQUIRES an operator over bf16 weights.  INVALID_ARGUMENT: the xclbin connects its arguments to other
  // memory groups than the package says, or sizes that control code cannot address; RESOURCE_EXHAUSTED:
  // memory, or the instruction heap.
  static absl::StatusOr<std::unique_ptr<GemmCommands>> Create(NpuDevice& device,
                                                              const NpuOperator& op,
                                                              const Options& options);

  // Numbers from one row to the next: inputs and outputs, filled up to multiples of 64.
  uint32_t input_stride() const { return input_stride_; }
  uint32_t output_stride() const { return output_stride_; }
  // bfloat16 [max_rows][input_stride], and float32 [max_rows filled up to a multiple of 64][output_stride].
  std::span<uint16_t> activations();
  std::span<float> output();
  // The whole output with its guards, [guard_rows + rows + guard_rows][output_stride].
  std::span<float> guarded_output();
  // Makes visible to the device what the host wrote to the output and its guards.
  absl::Status HandOverOutput() const { return output_.SyncToDevice(0, output_.size()); }
  // Makes visible to the host what the device wrote, guards included.
  absl::Status TakeBackOutput() const { return output_.SyncFromDevice(0, output_.size()); }

  // A zeroed buffer for one matrix's weights (array_weights.h).  Hand it over when it is filled.
  absl::StatusOr<NpuBuffer> MakeWeights();
  // A copy of a matrix of any format, [num_outputs, num_inputs].  RESOURCE_EXHAUSTED: memory.
  absl::StatusOr<NpuBuffer> CopyWeights(const WeightSet& weights, const PackedTensor& tensor);

  // Computes the first `num_rows` rows, and returns nanoseconds on the device, as the host sees them.  The
  // output is the host's afterwards.  Errors as NpuRun::Execute.  REQUIRES 1 <= num_rows <= max_rows.
  absl::StatusOr<int64_t> Execute(const NpuBuffer& weights, uint32_t num_rows,
                                  absl::Duration timeout);

  // For operators that hand over to one another on the device: the same over activations that are the
  // device's already, and the output stays there until TakeBackRows.
  absl::StatusOr<int64_t> ExecuteOnDevice(const NpuBuffer& weights, uint32_t num_rows,
                                          absl::Duration timeout);
  absl::Status TakeBackRows(uint32_t num_rows) const;
  // Their rows begin at the start.  REQUIRES no guard rows.
  const NpuBuffer& activations_buffer() const { return activations_; }
  const NpuBuffer& output_buffer() const { return output_; }

 private:
  GemmCommands(NpuDevice& device, const NpuOperator& op, const Options& options);
  // In the order of the kernel's arguments.
  std::array<const NpuBuffer*, 3> Arguments(const NpuBuffer& weights) const;
  // For `num_rows` rows, counted from `first_row`.
  absl::StatusOr<Transaction> Build(uint32_t first_row, uint32_t num_rows) const;
  absl::StatusOr<int64_t> ExecuteRows(const NpuBuffer& weights, uint32_t first_row,
                                      uint32_t num_rows, absl::Duration timeout);
  uint64_t OutputRowBytes() const { return uint64_t{output_stride_} * sizeof(float); }
  uint64_t InputRowBytes() const { return uint64_t{input_stride_} * sizeof(uint16_t); }

  NpuDevice& device_;      // Borrowed.
  const NpuOperator& op_;  // Borrowed.
  const Options options_;
  const uint32_t input_stride_;
  const uint32_t output_stride_;
  NpuBuffer activations_;
  NpuBuffer output_;
  std::optional<CommandCode> code_;  // set by Create, as the following
  std::optional<NpuRun> run_;
};

}  // namespace tandem::npu
