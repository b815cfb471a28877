// Rows of a matrix product on an array: activations and output, in buffers that hold a step's rows.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// Single-thread.
class GemmRows {
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

  // `kernel`: of a GEMM, `op`; other kernels and contexts may use the buffers too.
  // RESOURCE_EXHAUSTED: memory.
  static absl::StatusOr<GemmRows> Create(NpuKernel& kernel, const NpuOperator& op,
                                         const Options& options);

  uint32_t max_rows() const { return options_.max_rows; }
  uint32_t guard_rows() const { return options_.guard_rows; }
  // Numbers from one row to the next: inputs and outputs, filled up to multiples of 64.
  uint32_t input_stride() const { return input_stride_; }
  uint32_t output_stride() const { return output_stride_; }
  uint64_t InputRowBytes() const { return uint64_t{input_stride_} * sizeof(uint16_t); }
  uint64_t OutputRowBytes() const { return uint64_t{output_stride_} * sizeof(float); }

  // bfloat16 [max_rows][input_stride], and float32 [max_rows filled up to a multiple of 64][output_stride].
  std::span<uint16_t> activations();
  std::span<float> output();
  // The whole output with its guards, [guard_rows + rows + guard_rows][output_stride].
  std::span<float> guarded_output();

  // Makes visible to the device the first `num_rows` rows of activations that the host wrote.
  absl::Status HandOverRows(uint32_t num_rows) const {
    return activations_.SyncToDevice(0, num_rows * InputRowBytes());
  }
  // Makes visible to the host the first `num_rows` rows of output that the device wrote.
  absl::Status TakeBackRows(uint32_t num_rows) const {
    return output_.SyncFromDevice(options_.guard_rows * OutputRowBytes(),
                                  num_rows * OutputRowBytes());
  }
  // The same of the whole output with its guards, to the device and back.
  absl::Status HandOverOutput() const { return output_.SyncToDevice(0, output_.size()); }
  absl::Status TakeBackOutput() const { return output_.SyncFromDevice(0, output_.size()); }

  // Rows of activations begin at the start, those of output behind the guard rows.
  const NpuBuffer& activations_buffer() const { return activations_; }
  const NpuBuffer& output_buffer() const { return output_; }

 private:
  Options options_;
  uint32_t input_stride_ = 0;
  uint32_t output_stride_ = 0;
  NpuBuffer activations_;
  NpuBuffer output_;
};

}  // namespace tandem::npu
