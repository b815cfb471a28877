#include "services/npu_worker/operators/row_commands.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {
namespace {

// Of one command: it ends long before the driver gives it up.
constexpr uint32_t kRowsOfCommand = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<RowCommands>> RowCommands::Create(NpuDevice& device,
                                                                 const NpuOperator& op,
                                                                 Options options,
                                                                 const Buffers& buffers) {
  TANDEM_CHECK(op.control == ControlKind::kRows && !options.jobs.empty());
  std::unique_ptr<RowCommands> commands(new RowCommands(op, std::move(options), buffers));
  TANDEM_RETURN_IF_ERROR(CheckMemoryGroups(device, op));
  const uint32_t max_rows = commands->options_.max_rows;
  const uint32_t last_row = (max_rows - 1) / kRowsOfCommand * kRowsOfCommand;
  TANDEM_RETURN_IF_ERROR(commands->Build(last_row, max_rows - last_row).status());
  // The longest code is that of the fewest rows that all columns have a share of.
  TANDEM_ASSIGN_OR_RETURN(const Transaction longest,
                          commands->Build(0, std::min(max_rows, kRowCores * op.array.num_columns)));
  TANDEM_ASSIGN_OR_RETURN(commands->code_, CommandCode::Create(device, longest));
  // Each execution sets its weights.
  TANDEM_ASSIGN_OR_RETURN(commands->run_,
                          device.MakeRun(commands->code_->instructions(), longest.words().size(),
                                         commands->Arguments(nullptr)));
  return commands;
}

absl::StatusOr<NpuBuffer> RowCommands::MakeBuffer(NpuDevice& device, const NpuOperator& op,
                                                  std::string_view argument, uint64_t bytes) {
  return device.Allocate(static_cast<int>(op.argument(argument).buffer()), bytes);
}

std::array<const NpuBuffer*, 4> RowCommands::Arguments(const NpuBuffer* weights) const {
  std::array<const NpuBuffer*, 4> arguments{};
  const std::pair<const char*, const NpuBuffer*> by_name[] = {{"first", buffers_.first},
                                                              {"second", buffers_.second},
                                                              {"output", buffers_.output},
                                                              {"weights", weights}};
  for (const auto& [name, buffer] : by_name) {
    // A kernel has all its arguments: one that no job reads is any buffer.
    arguments[op_.argument(name).buffer()] = buffer == nullptr ? buffers_.first : buffer;
  }
  return arguments;
}

absl::StatusOr<Transaction> RowCommands::Build(uint32_t first_row, uint32_t num_rows) const {
  Transaction all(op_.array);
  for (RowJob job : options_.jobs) {
    job.array = op_.array;
    job.parameters = op_.parameters;
    job.num_rows = num_rows;
    job.weights.argument = op_.argument("weights").buffer();
    const std::pair<const char*, RowOperand*> operands[] = {
        {"first", &job.first}, {"second", &job.second}, {"output", &job.output}};
    for (const auto& [name, operand] : operands) {
      const uint64_t offset =
          operand->place.offset + uint64_t{first_row} * operand->stride * sizeof(uint32_t);
      if (offset > ~0u) {
        return absl::InvalidArgumentError(
            absl::StrFormat("operator '%s': row %d, rows %d words apart, lies behind 4 GiB",
                            op_.name, first_row, operand->stride));
      }
      operand->place = {.argument = op_.argument(name).buffer(),
                        .offset = static_cast<uint32_t>(offset)};
    }
    TANDEM_ASSIGN_OR_RETURN(const Transaction built, BuildRows(job));
    all.Append(built);
  }
  return all;
}

absl::StatusOr<int64_t> RowCommands::Execute(const NpuBuffer* weights, uint32_t num_rows,
                                             absl::Duration timeout) {
  TANDEM_CHECK(num_rows > 0 && num_rows <= options_.max_rows);
  const absl::Time start = absl::Now();
  for (uint32_t row = 0; row < num_rows; row += kRowsOfCommand) {
    // Filled up, so that few codes are made.
    const uint32_t rows = PaddedJobRows(std::min(kRowsOfCommand, num_rows - row));
    TANDEM_ASSIGN_OR_RETURN(const size_t num_words,
                            code_->Load({row, rows}, [&] { return Build(row, rows); }));
    TANDEM_RETURN_IF_ERROR(
        run_->SetArguments(code_->instructions(), num_words, Arguments(weights)));
    TANDEM_RETURN_IF_ERROR(run_->Execute(timeout - (absl::Now() - start)));
  }
  return absl::ToInt64Nanoseconds(absl::Now() - start);
}

}  // namespace tandem::npu
