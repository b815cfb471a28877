#include "services/npu_worker/operators/gemm_self_test.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/backend/known_answer.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kGemmTestRows = 5;
constexpr uint32_t kGemmTestGuardRows = 1;
constexpr uint32_t kGemmTestOutputs = 75;
constexpr uint32_t kGemmTestInputs = 128;
// NaNs: no product gives them.
constexpr Fill<uint32_t> kGemmFill = {.guard = 0x7FA5A5A5, .canary = 0x7FDACDAC};
// Answers are sums of 128 products of numbers below 1 in size.  In block floating point each factor is
// rounded by 2^-7 of its block's largest at most, and errors do not add up in one direction.
constexpr double kGemmTestTolerance = 0.25;

// In [-1, 1), and in bfloat16.
float Number(uint32_t a, uint32_t b, uint32_t c) {
  return Bf16ToFloat(FloatToBf16(2.0f * KnownNumber(a, b, c) - 1.0f));
}
float Activation(uint32_t row, uint32_t input) { return Number(row, input, 1); }
float Weight(uint32_t output, uint32_t input) { return Number(output, input, 2); }

std::span<const uint32_t> BitsOf(std::span<const float> values) {
  return {reinterpret_cast<const uint32_t*>(values.data()), values.size()};
}

}  // namespace

absl::Status GemmSelfTest::Failure(const std::string& what) const {
  return absl::DataLossError(absl::StrFormat("NPU self-test of '%s': %s", op_.name, what));
}

absl::StatusOr<std::unique_ptr<GemmSelfTest>> GemmSelfTest::Create(
    std::shared_ptr<NpuDevice> device, const NpuOperator& op) {
  std::unique_ptr<GemmSelfTest> test(new GemmSelfTest(std::move(device), op));
  TANDEM_ASSIGN_OR_RETURN(test->commands_,
                          GemmCommands::Create(*test->device_, op,
                                               {.max_rows = kGemmTestRows,
                                                .num_outputs = kGemmTestOutputs,
                                                .num_inputs = kGemmTestInputs,
                                                .guard_rows = kGemmTestGuardRows}));
  TANDEM_ASSIGN_OR_RETURN(test->weights_, test->commands_->MakeWeights());
  // The order that array_weights.h says, written down once more.
  auto* const numbers = reinterpret_cast<uint16_t*>(test->weights_.data());
  for (uint32_t output = 0; output < kGemmTestOutputs; ++output) {
    for (uint32_t input = 0; input < kGemmTestInputs; ++input) {
      const size_t tile = output / 64 * (kGemmTestInputs / 64) + input / 64;
      const size_t block = input % 64 / 8 * 8 + output % 64 / 8;
      numbers[((tile * 64 + block) * 8 + input % 8) * 8 + output % 8] =
          FloatToBf16(Weight(output, input));
    }
  }
  TANDEM_RETURN_IF_ERROR(test->weights_.SyncToDevice(0, test->weights_.size()));
  return test;
}

absl::Status GemmSelfTest::Check() {
  const auto all = BitsOf(commands_->guarded_output());
  const auto output = commands_->output();
  const size_t guards = size_t{kGemmTestGuardRows} * commands_->output_stride();
  const std::string wrong =
      WrongWrites<uint32_t>(BitsOf(output), {all.first(guards), all.last(guards)}, kGemmFill);
  if (!wrong.empty()) return Failure(wrong);
  for (uint32_t row = 0; row < kGemmTestRows; ++row) {
    for (uint32_t n = 0; n < kGemmTestOutputs; ++n) {
      double expected = 0;
      for (uint32_t k = 0; k < kGemmTestInputs; ++k) {
        expected += double{Activation(row, k)} * Weight(n, k);
      }
      const double actual = output[size_t{row} * commands_->output_stride() + n];
      if (!(std::abs(actual - expected) <= kGemmTestTolerance)) {
        return Failure(
            absl::StrFormat("output %d of row %d is %g, expected %g", n, row, actual, expected));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GemmSelfTest::Run(absl::Duration timeout) {
  std::ranges::fill(commands_->guarded_output(), std::bit_cast<float>(kGemmFill.guard));
  std::ranges::fill(commands_->output(), std::bit_cast<float>(kGemmFill.canary));
  TANDEM_RETURN_IF_ERROR(commands_->HandOverOutput());
  const auto activations = commands_->activations();
  for (uint32_t row = 0; row < kGemmTestRows; ++row) {
    for (uint32_t k = 0; k < kGemmTestInputs; ++k) {
      activations[size_t{row} * commands_->input_stride() + k] = FloatToBf16(Activation(row, k));
    }
  }
  const auto ns = commands_->Execute(weights_, kGemmTestRows, timeout);
  if (absl::IsInternal(ns.status())) return Failure(std::string(ns.status().message()));
  if (!ns.ok()) return ns.status();
  TANDEM_RETURN_IF_ERROR(commands_->TakeBackOutput());
  return Check();
}

}  // namespace tandem::npu
