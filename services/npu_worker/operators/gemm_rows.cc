#include "services/npu_worker/operators/gemm_rows.h"

#include <algorithm>

#include "services/common/base/status_macros.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {
namespace {

static_assert(kGemmInputs == kGemmOutputs);
uint32_t Padded(uint32_t size) { return (size + kGemmInputs - 1) / kGemmInputs * kGemmInputs; }

}  // namespace

absl::StatusOr<GemmRows> GemmRows::Create(NpuKernel& kernel, const NpuOperator& op,
                                          const Options& options) {
  GemmRows made;
  made.options_ = options;
  made.input_stride_ = Padded(options.num_inputs);
  made.output_stride_ = std::max(Padded(options.num_outputs), options.output_stride);
  const uint64_t rows = GemmPaddedRows(options.max_rows);
  const auto allocate = [&](const char* name, uint64_t bytes) {
    return kernel.Allocate(static_cast<int>(op.argument(name).buffer()), bytes);
  };
  TANDEM_ASSIGN_OR_RETURN(made.activations_, allocate("activations", rows * made.InputRowBytes()));
  TANDEM_ASSIGN_OR_RETURN(
      made.output_, allocate("output", (rows + 2 * options.guard_rows) * made.OutputRowBytes()));
  return made;
}

std::span<uint16_t> GemmRows::activations() {
  return {reinterpret_cast<uint16_t*>(activations_.data()),
          size_t{options_.max_rows} * input_stride_};
}

std::span<float> GemmRows::guarded_output() {
  return {reinterpret_cast<float*>(output_.data()), output_.size() / sizeof(float)};
}

std::span<float> GemmRows::output() {
  const size_t guards = size_t{options_.guard_rows} * output_stride_;
  return guarded_output().subspan(guards,
                                  size_t{GemmPaddedRows(options_.max_rows)} * output_stride_);
}

}  // namespace tandem::npu
