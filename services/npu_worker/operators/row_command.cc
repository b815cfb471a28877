#include "services/npu_worker/operators/row_command.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

absl::StatusOr<std::unique_ptr<RowCommand>> RowCommand::Create(NpuKernel& kernel,
                                                               const NpuOperator& op,
                                                               Options options,
                                                               const Buffers& buffers) {
  TANDEM_CHECK(op.control == ControlKind::kRows && !options.jobs.empty());
  std::unique_ptr<RowCommand> command(new RowCommand(kernel, op, std::move(options), buffers));
  // The longest code is that of the fewest rows that all columns have a share of.
  TANDEM_RETURN_IF_ERROR(
      command->Prepare(std::min(command->max_rows(), kRowCores * op.array.num_columns)));
  return command;
}

absl::StatusOr<NpuBuffer> RowCommand::MakeBuffer(NpuKernel& kernel, const NpuOperator& op,
                                                 std::string_view argument, uint64_t bytes) {
  return kernel.Allocate(static_cast<int>(op.argument(argument).buffer()), bytes);
}

std::vector<const NpuBuffer*> RowCommand::Arguments(const NpuBuffer* weights) const {
  std::vector<const NpuBuffer*> arguments(op().arguments.size());
  const std::pair<const char*, const NpuBuffer*> by_name[] = {{"first", buffers_.first},
                                                              {"second", buffers_.second},
                                                              {"output", buffers_.output},
                                                              {"weights", weights}};
  for (const auto& [name, buffer] : by_name) {
    // A kernel has all its arguments: one that no job reads is any buffer.
    arguments[op().argument(name).buffer()] = buffer == nullptr ? buffers_.first : buffer;
  }
  return arguments;
}

absl::StatusOr<Transaction> RowCommand::Build(uint32_t first_row, uint32_t num_rows) const {
  Transaction all(op().array);
  for (RowJob job : jobs_) {
    job.array = op().array;
    job.parameters = op().parameters;
    job.num_rows = num_rows;
    job.weights.argument = op().argument("weights").buffer();
    const std::pair<const char*, RowOperand*> operands[] = {
        {"first", &job.first}, {"second", &job.second}, {"output", &job.output}};
    for (const auto& [name, operand] : operands) {
      const uint64_t offset =
          operand->place.offset + uint64_t{first_row} * operand->stride * sizeof(uint32_t);
      if (offset > ~0u) {
        return absl::InvalidArgumentError(
            absl::StrFormat("operator '%s': row %d, rows %d words apart, lies behind 4 GiB",
                            op().name, first_row, operand->stride));
      }
      operand->place = {.argument = op().argument(name).buffer(),
                        .offset = static_cast<uint32_t>(offset)};
    }
    TANDEM_ASSIGN_OR_RETURN(const Transaction built, BuildRows(job));
    all.Append(built);
  }
  return all;
}

}  // namespace tandem::npu
