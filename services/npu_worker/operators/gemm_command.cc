#include "services/npu_worker/operators/gemm_command.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<GemmCommand>> GemmCommand::Create(NpuKernel& kernel,
                                                                 const NpuOperator& op,
                                                                 const GemmRows& rows,
                                                                 const MatrixPart& part) {
  TANDEM_CHECK(op.control == ControlKind::kGemm && op.weight_dtype == part.format);
  std::unique_ptr<GemmCommand> command(new GemmCommand(kernel, op, rows, part));
  TANDEM_RETURN_IF_ERROR(command->Prepare(std::min(rows.max_rows(), kCommandRows)));
  return command;
}

std::vector<const NpuBuffer*> GemmCommand::Arguments(const NpuBuffer* weights) const {
  std::vector<const NpuBuffer*> arguments(op().arguments.size());
  arguments[op().argument("activations").buffer()] = &rows_.activations_buffer();
  arguments[op().argument("weights").buffer()] = weights;
  arguments[op().argument("output").buffer()] = &rows_.output_buffer();
  return arguments;
}

absl::StatusOr<NpuBuffer> GemmCommand::MakeWeights() {
  return kernel().Allocate(static_cast<int>(op().argument("weights").buffer()),
                           ArrayWeightBytes(part_.format, part_.num_outputs, rows_.input_stride()));
}

absl::StatusOr<Transaction> GemmCommand::Build(uint32_t first_row, uint32_t num_rows) const {
  const uint64_t input = first_row * rows_.InputRowBytes();
  const uint64_t output = (uint64_t{first_row} + rows_.guard_rows()) * rows_.OutputRowBytes() +
                          uint64_t{part_.first_output} * sizeof(float);
  if (input > ~0u || output > ~0u) {
    return absl::InvalidArgumentError(
        absl::StrFormat("operator '%s': row %d of %d outputs and %d inputs lies behind 4 GiB",
                        op().name, first_row, rows_.output_stride(), rows_.input_stride()));
  }
  // Copies of weights are filled up in both directions.
  const uint32_t num_outputs = (part_.num_outputs + kGemmOutputs - 1) / kGemmOutputs * kGemmOutputs;
  return BuildGemm({.array = op().array,
                    .weight_dtype = part_.format,
                    .num_rows = num_rows,
                    .num_outputs = num_outputs,
                    .num_inputs = rows_.input_stride(),
                    .output_stride = rows_.output_stride(),
                    .activations = {.argument = op().argument("activations").buffer(),
                                    .offset = static_cast<uint32_t>(input)},
                    .weights = {.argument = op().argument("weights").buffer()},
                    .output = {.argument = op().argument("output").buffer(),
                               .offset = static_cast<uint32_t>(output)},
                    .parameters = op().parameters});
}

}  // namespace tandem::npu
