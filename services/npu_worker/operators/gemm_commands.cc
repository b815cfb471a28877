#include "services/npu_worker/operators/gemm_commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"
#include "services/npu_worker/operators/array_weights.h"

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
      output_stride_(std::max((options.num_outputs + kMultiple - 1) / kMultiple * kMultiple,
                              options.output_stride)) {}

absl::StatusOr<std::unique_ptr<GemmCommands>> GemmCommands::Create(NpuDevice& device,
                                                                   const NpuOperator& op,
                                                                   const Options& options) {
  TANDEM_CHECK(op.control == ControlKind::kGemm && op.weight_dtype == DType::kBf16);
  std::unique_ptr<GemmCommands> commands(new GemmCommands(device, op, options));
  TANDEM_RETURN_IF_ERROR(CheckMemoryGroups(device, op));
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
  TANDEM_ASSIGN_OR_RETURN(commands->code_, CommandCode::Create(device, longest));
  // Each execution sets its weights.
  TANDEM_ASSIGN_OR_RETURN(commands->run_,
                          device.MakeRun(commands->code_->instructions(), longest.words().size(),
                                         commands->Arguments(commands->activations_)));
  return commands;
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

absl::StatusOr<NpuBuffer> GemmCommands::CopyWeights(const WeightSet& weights,
                                                    const PackedTensor& tensor) {
  TANDEM_CHECK(tensor.shape.rows == options_.num_outputs &&
               tensor.shape.cols == options_.num_inputs);
  TANDEM_ASSIGN_OR_RETURN(NpuBuffer buffer, MakeWeights());
  PackArrayWeights(weights, tensor,
                   {reinterpret_cast<uint16_t*>(buffer.data()),
                    NumArrayWeights(options_.num_outputs, options_.num_inputs)});
  TANDEM_RETURN_IF_ERROR(buffer.SyncToDevice(0, buffer.size()));
  return buffer;
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

absl::StatusOr<int64_t> GemmCommands::ExecuteOnDevice(const NpuBuffer& weights, uint32_t num_rows,
                                                      absl::Duration timeout) {
  TANDEM_CHECK(num_rows > 0 && num_rows <= options_.max_rows);
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

absl::Status GemmCommands::TakeBackRows(uint32_t num_rows) const {
  return output_.SyncFromDevice(options_.guard_rows * OutputRowBytes(),
                                num_rows * OutputRowBytes());
}

absl::StatusOr<int64_t> GemmCommands::Execute(const NpuBuffer& weights, uint32_t num_rows,
                                              absl::Duration timeout) {
  TANDEM_CHECK(num_rows > 0 && num_rows <= options_.max_rows);
  TANDEM_RETURN_IF_ERROR(activations_.SyncToDevice(0, num_rows * InputRowBytes()));
  TANDEM_ASSIGN_OR_RETURN(const int64_t ns, ExecuteOnDevice(weights, num_rows, timeout));
  TANDEM_RETURN_IF_ERROR(TakeBackRows(num_rows));
  return ns;
}

}  // namespace tandem::npu
