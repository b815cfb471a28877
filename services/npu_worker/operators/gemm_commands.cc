#include "services/npu_worker/operators/gemm_commands.h"

#include <algorithm>
#include <cstring>
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
constexpr uint32_t kMultiple = kGemmOutputs;
static_assert(kGemmInputs == kGemmOutputs);

}  // namespace

GemmCommands::GemmCommands(NpuDevice& device, const NpuOperator& op, const Options& options)
    : device_(device),
      op_(op),
      options_(options),
      input_stride_((options.num_inputs + kMultiple - 1) / kMultiple * kMultiple),
      output_stride_((options.num_outputs + kMultiple - 1) / kMultiple * kMultiple) {}

absl::StatusOr<std::unique_ptr<GemmCommands>> GemmCommands::Create(NpuDevice& device,
                                                                   const NpuOperator& op,
                                                                   const Options& options) {
  TANDEM_CHECK(op.control == ControlKind::kGemm && op.weight_dtype == DType::kBf16);
  std::unique_ptr<GemmCommands> commands(new GemmCommands(device, op, options));
  TANDEM_RETURN_IF_ERROR(commands->CheckGroups());
  const uint64_t rows = GemmPaddedRows(options.max_rows);
  const auto allocate = [&](const char* name, uint64_t bytes) {
    return device.Allocate(static_cast<int>(op.argument(name).buffer()), bytes);
  };
  // The longest code: of the last rows as of the first ones.
  TANDEM_ASSIGN_OR_RETURN(const Transaction longest,
                          commands->Build(0, std::min(options.max_rows, kCommandRows)));
  const uint32_t last_row = (options.max_rows - 1) / kCommandRows * kCommandRows;
  TANDEM_RETURN_IF_ERROR(commands->Build(last_row, options.max_rows - last_row).status());
  TANDEM_ASSIGN_OR_RETURN(commands->activations_,
                          allocate("activations", rows * commands->InputRowBytes()));
  TANDEM_ASSIGN_OR_RETURN(commands->output_, allocate("output", (rows + 2 * options.guard_rows) *
                                                                    commands->OutputRowBytes()));
  TANDEM_ASSIGN_OR_RETURN(commands->instructions_, device.MakeInstructions(longest.words()));
  // Each execution sets its weights.
  TANDEM_ASSIGN_OR_RETURN(commands->run_,
                          device.MakeRun(commands->instructions_, longest.words().size(),
                                         commands->Arguments(commands->activations_)));
  return commands;
}

absl::Status GemmCommands::CheckGroups() const {
  for (const OperatorArgument& argument : op_.arguments) {
    TANDEM_ASSIGN_OR_RETURN(const uint32_t group,
                            device_.MemoryGroup(static_cast<int>(argument.buffer())));
    if (group == argument.group) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "operator '%s': argument %d (%s) is in memory group %d of the xclbin, the package says %d",
        op_.name, argument.index, argument.name, group, argument.group));
  }
  return absl::OkStatus();
}

std::array<const NpuBuffer*, 3> GemmCommands::Arguments(const NpuBuffer& weights) const {
  std::array<const NpuBuffer*, 3> arguments{};
  arguments[op_.argument("activations").buffer()] = &activations_;
  arguments[op_.argument("weights").buffer()] = &weights;
  arguments[op_.argument("output").buffer()] = &output_;
  return arguments;
}

std::span<uint16_t> GemmCommands::activations() {
  return {reinterpret_cast<uint16_t*>(activations_.data()),
          size_t{options_.max_rows} * input_stride_};
}

std::span<float> GemmCommands::guarded_output() {
  return {reinterpret_cast<float*>(output_.data()), output_.size() / sizeof(float)};
}

std::span<float> GemmCommands::output() {
  const size_t guards = size_t{options_.guard_rows} * output_stride_;
  return guarded_output().subspan(guards,
                                  size_t{GemmPaddedRows(options_.max_rows)} * output_stride_);
}

absl::StatusOr<NpuBuffer> GemmCommands::MakeWeights() {
  return device_.Allocate(static_cast<int>(op_.argument("weights").buffer()),
                          GemmBf16Bytes(options_.num_outputs, options_.num_inputs));
}

absl::StatusOr<Transaction> GemmCommands::Build(uint32_t first_row, uint32_t num_rows) const {
  const uint64_t input = first_row * InputRowBytes();
  const uint64_t output = (uint64_t{first_row} + options_.guard_rows) * OutputRowBytes();
  if (input > ~0u || output > ~0u) {
    return absl::InvalidArgumentError(
        absl::StrFormat("operator '%s': row %d of %d outputs and %d inputs lies behind 4 GiB",
                        op_.name, first_row, options_.num_outputs, options_.num_inputs));
  }
  return BuildGemm({.array = op_.array,
                    .weight_dtype = DType::kBf16,
                    .num_rows = num_rows,
                    .num_outputs = options_.num_outputs,
                    .num_inputs = input_stride_,
                    .output_stride = output_stride_,
                    .activations = {.argument = op_.argument("activations").buffer(),
                                    .offset = static_cast<uint32_t>(input)},
                    .weights = {.argument = op_.argument("weights").buffer()},
                    .output = {.argument = op_.argument("output").buffer(),
                               .offset = static_cast<uint32_t>(output)},
                    .parameters = op_.parameters});
}

absl::StatusOr<size_t> GemmCommands::LoadCode(uint32_t first_row, uint32_t num_rows) {
  const Code wanted = {first_row, GemmPaddedRows(num_rows) / kGemmRows};
  if (loaded_ == wanted) return loaded_words_;
  loaded_ = {};
  auto known = known_.find({wanted.first_row, wanted.num_blocks});
  if (known == known_.end()) {
    TANDEM_ASSIGN_OR_RETURN(Transaction built, Build(first_row, wanted.num_blocks * kGemmRows));
    known = known_.emplace(std::pair(wanted.first_row, wanted.num_blocks), std::move(built)).first;
  }
  const std::vector<uint32_t>& words = known->second.words();
  const size_t bytes = words.size() * sizeof(uint32_t);
  TANDEM_CHECK(bytes <= instructions_.size());
  std::memcpy(instructions_.data(), words.data(), bytes);
  TANDEM_RETURN_IF_ERROR(instructions_.SyncToDevice(0, bytes));
  loaded_ = wanted;
  loaded_words_ = words.size();
  return loaded_words_;
}

absl::StatusOr<int64_t> GemmCommands::ExecuteRows(const NpuBuffer& weights, uint32_t first_row,
                                                  uint32_t num_rows, absl::Duration timeout) {
  TANDEM_ASSIGN_OR_RETURN(const size_t num_words, LoadCode(first_row, num_rows));
  TANDEM_RETURN_IF_ERROR(run_->SetArguments(instructions_, num_words, Arguments(weights)));
  const absl::Time start = absl::Now();
  TANDEM_RETURN_IF_ERROR(run_->Execute(timeout));
  return absl::ToInt64Nanoseconds(absl::Now() - start);
}

absl::StatusOr<int64_t> GemmCommands::Execute(const NpuBuffer& weights, uint32_t num_rows,
                                              absl::Duration timeout) {
  TANDEM_CHECK(num_rows > 0 && num_rows <= options_.max_rows);
  TANDEM_RETURN_IF_ERROR(activations_.SyncToDevice(0, num_rows * InputRowBytes()));
  const absl::Time start = absl::Now();
  int64_t ns = 0;
  for (uint32_t row = 0; row < num_rows; row += kCommandRows) {
    const absl::Duration left = row == 0 ? timeout : timeout - (absl::Now() - start);
    TANDEM_ASSIGN_OR_RETURN(
        const int64_t rows_ns,
        ExecuteRows(weights, row, std::min(kCommandRows, num_rows - row), left));
    ns += rows_ns;
  }
  TANDEM_RETURN_IF_ERROR(
      output_.SyncFromDevice(options_.guard_rows * OutputRowBytes(), num_rows * OutputRowBytes()));
  return ns;
}

}  // namespace tandem::npu
