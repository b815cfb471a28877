#include "services/npu_worker/emulator/kernels/out.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/weights/packed_tensor.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/kernels/arithmetic.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint32_t kWeightRowsPerTask = 64;
constexpr uint32_t kWeightRowsAtOnce = 4;
constexpr uint32_t kMaxCount = 1u << 20;

absl::Status CheckLayer(const OutParameters& layer) {
  if (layer.magic != kOutParametersMagic || layer.version != kAbiVersion) {
    return absl::InvalidArgumentError(
        absl::StrFormat("out: parameters %#x version %d", layer.magic, layer.version));
  }
  const bool counts_hold =
      layer.weight_dtype < kNumDTypes && layer.num_rows >= 1 && layer.hidden_dim <= kMaxCount &&
      layer.first_row <= layer.hidden_dim && layer.num_rows <= layer.hidden_dim - layer.first_row &&
      layer.num_cols >= 1 && layer.num_cols <= kMaxCount &&
      layer.num_cols % Traits(static_cast<DType>(layer.weight_dtype)).block_elements == 0;
  if (!counts_hold) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "out: layer %d: format %d, rows [%d, +%d) of %d, %d columns", layer.layer_idx,
        layer.weight_dtype, layer.first_row, layer.num_rows, layer.hidden_dim, layer.num_cols));
  }
  return absl::OkStatus();
}

struct Job {
  const OutParameters& layer;
  std::vector<Plane> planes;
  const uint8_t* weights;
  const float* input;  // [num_step_rows, padded_cols]
  size_t padded_cols;
  uint32_t num_step_rows;
  float* projection;
};

// Weight rows [first, last) against every row of the step.
void RunTask(const Job& job, uint32_t first, uint32_t last, const Arithmetic& math) {
  thread_local std::vector<float> scratch;
  scratch.assign(kWeightRowsAtOnce * job.padded_cols, 0.0f);
  for (uint32_t row = first; row < last; row += kWeightRowsAtOnce) {
    const uint32_t count = std::min(kWeightRowsAtOnce, last - row);
    for (uint32_t j = 0; j < count; ++j) {
      const uint8_t* planes[4] = {};
      for (size_t p = 0; p < job.planes.size(); ++p) {
        planes[p] = job.weights + job.planes[p].RowOffset(row + j);
      }
      math.dequantize(job.layer.weight_dtype, planes, job.layer.num_cols,
                      scratch.data() + j * job.padded_cols);
    }
    for (uint32_t r = 0; r < job.num_step_rows; ++r) {
      float dots[kWeightRowsAtOnce];
      math.dot_four(job.input + r * job.padded_cols, scratch.data(), job.padded_cols, dots);
      float* out = job.projection + uint64_t{r} * job.layer.hidden_dim + job.layer.first_row + row;
      std::copy(dots, dots + count, out);
    }
  }
}

}  // namespace

absl::StatusOr<std::span<std::byte>> Out(uint32_t num_step_rows, const OutParameters& layer,
                                         std::span<std::byte> exchange,
                                         std::span<const std::byte> weights,
                                         ParallelFor& parallel_for) {
  TANDEM_RETURN_IF_ERROR(CheckLayer(layer));
  const uint64_t input_bytes = uint64_t{num_step_rows} * layer.num_cols * sizeof(uint16_t);
  const uint64_t output_bytes = uint64_t{num_step_rows} * layer.hidden_dim * sizeof(float);
  TANDEM_ASSIGN_OR_RETURN(const auto input,
                          Within(exchange, layer.attention_offset, input_bytes, "attention"));
  TANDEM_ASSIGN_OR_RETURN(const auto output,
                          Within(exchange, layer.projection_offset, output_bytes, "projection"));
  const auto dtype = static_cast<DType>(layer.weight_dtype);
  const uint64_t weight_bytes = ShardBytes(dtype, layer.num_rows, layer.num_cols);
  if (layer.weight_offset > weights.size() || weight_bytes > weights.size() - layer.weight_offset) {
    return absl::OutOfRangeError(absl::StrFormat("weights: %d bytes at offset %d of a buffer of %d",
                                                 weight_bytes, layer.weight_offset,
                                                 weights.size()));
  }
  if ((layer.attention_offset | layer.projection_offset | layer.weight_offset) % 8 != 0) {
    return absl::InvalidArgumentError("out: an offset is not a multiple of 8");
  }

  const Arithmetic& math = HostArithmetic();
  const size_t padded_cols = (layer.num_cols + kLanes - 1) / kLanes * kLanes;
  static thread_local std::vector<float> rows;
  rows.assign(num_step_rows * padded_cols, 0.0f);
  for (uint32_t r = 0; r < num_step_rows; ++r) {
    math.half_to_float(
        reinterpret_cast<const uint16_t*>(input.data()) + uint64_t{r} * layer.num_cols,
        rows.data() + r * padded_cols, layer.num_cols);
  }
  const Job job{layer,
                PlanesOf(dtype, layer.num_rows, layer.num_cols),
                reinterpret_cast<const uint8_t*>(weights.data()) + layer.weight_offset,
                rows.data(),
                padded_cols,
                num_step_rows,
                reinterpret_cast<float*>(output.data())};
  const uint32_t num_tasks = (layer.num_rows + kWeightRowsPerTask - 1) / kWeightRowsPerTask;
  parallel_for.Run(static_cast<int>(num_tasks), [&job, &math](int i) {
    const uint32_t first = static_cast<uint32_t>(i) * kWeightRowsPerTask;
    RunTask(job, first, std::min(first + kWeightRowsPerTask, job.layer.num_rows), math);
  });
  return output;
}

}  // namespace tandem::npu::emulator
