#include "services/npu_worker/operators/gemm_commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {
namespace {

// Of one command: its control code stays short, and it ends long before the driver gives it up.
constexpr uint32_t kCommandRows = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<GemmCommands>> GemmCommands::Create(NpuDevice& device,
                                                                   const NpuOperator& op,
                                                                   const GemmRows& rows,
                                                                   const MatrixPart& part) {
  TANDEM_CHECK(op.control == ControlKind::kGemm && op.weight_dtype == part.format);
  std::unique_ptr<GemmCommands> commands(new GemmCommands(device, op, rows, part));
  TANDEM_RETURN_IF_ERROR(CheckMemoryGroups(device, op));
  // The longest code: of the last rows as of the first ones.
  TANDEM_ASSIGN_OR_RETURN(const Transaction longest,
                          commands->Build(0, std::min(rows.max_rows(), kCommandRows)));
  const uint32_t last_row = (rows.max_rows() - 1) / kCommandRows * kCommandRows;
  TANDEM_RETURN_IF_ERROR(commands->Build(last_row, rows.max_rows() - last_row).status());
  TANDEM_ASSIGN_OR_RETURN(commands->code_, CommandCode::Create(device, longest));
  // Each execution sets its weights.
  TANDEM_ASSIGN_OR_RETURN(commands->run_,
                          device.MakeRun(commands->code_->instructions(), longest.words().size(),
                                         commands->Arguments(rows.activations_buffer())));
  return commands;
}

std::array<const NpuBuffer*, 3> GemmCommands::Arguments(const NpuBuffer& weights) const {
  std::array<const NpuBuffer*, 3> arguments{};
  arguments[op_.argument("activations").buffer()] = &rows_.activations_buffer();
  arguments[op_.argument("weights").buffer()] = &weights;
  arguments[op_.argument("output").buffer()] = &rows_.output_buffer();
  return arguments;
}

absl::StatusOr<NpuBuffer> GemmCommands::MakeWeights() {
  return device_.Allocate(static_cast<int>(op_.argument("weights").buffer()),
                          ArrayWeightBytes(part_.format, part_.num_outputs, rows_.input_stride()));
}

absl::StatusOr<Transaction> GemmCommands::Build(uint32_t first_row, uint32_t num_rows) const {
  const uint64_t input = first_row * rows_.InputRowBytes();
  const uint64_t output = (uint64_t{first_row} + rows_.guard_rows()) * rows_.OutputRowBytes() +
                          uint64_t{part_.first_output} * sizeof(float);
  if (input > ~0u || output > ~0u) {
    return absl::InvalidArgumentError(
        absl::StrFormat("operator '%s': row %d of %d outputs and %d inputs lies behind 4 GiB",
                        op_.name, first_row, rows_.output_stride(), rows_.input_stride()));
  }
  // Copies of weights are filled up in both directions.
  const uint32_t num_outputs = (part_.num_outputs + kGemmOutputs - 1) / kGemmOutputs * kGemmOutputs;
  return BuildGemm({.array = op_.array,
                    .weight_dtype = part_.format,
                    .num_rows = num_rows,
                    .num_outputs = num_outputs,
                    .num_inputs = rows_.input_stride(),
                    .output_stride = rows_.output_stride(),
                    .activations = {.argument = op_.argument("activations").buffer(),
                                    .offset = static_cast<uint32_t>(input)},
                    .weights = {.argument = op_.argument("weights").buffer()},
                    .output = {.argument = op_.argument("output").buffer(),
                               .offset = static_cast<uint32_t>(output)},
                    .parameters = op_.parameters});
}

absl::StatusOr<int64_t> GemmCommands::ExecuteRows(const NpuBuffer& weights, uint32_t first_row,
                                                  uint32_t num_rows, absl::Duration timeout) {
  // Filled up, so that few codes are made.
  const uint32_t rows = GemmPaddedRows(num_rows);
  TANDEM_ASSIGN_OR_RETURN(const size_t num_words,
                          code_->Load({first_row, rows}, [&] { return Build(first_row, rows); }));
  TANDEM_RETURN_IF_ERROR(run_->SetArguments(code_->instructions(), num_words, Arguments(weights)));
  const absl::Time start = absl::Now();
  TANDEM_RETURN_IF_ERROR(run_->Execute(timeout));
  return absl::ToInt64Nanoseconds(absl::Now() - start);
}

absl::StatusOr<int64_t> GemmCommands::Execute(const NpuBuffer& weights, uint32_t num_rows,
                                              absl::Duration timeout) {
  TANDEM_CHECK(num_rows > 0 && num_rows <= rows_.max_rows());
  const absl::Time start = absl::Now();
  int64_t ns = 0;
  for (uint32_t row = 0; row < num_rows; row += kCommandRows) {
    const absl::Duration left = row == 0 ? timeout : timeout - (absl::Now() - start);
    TANDEM_ASSIGN_OR_RETURN(
        const int64_t rows_ns,
        ExecuteRows(weights, row, std::min(kCommandRows, num_rows - row), left));
    ns += rows_ns;
  }
  return ns;
}

}  // namespace tandem::npu
