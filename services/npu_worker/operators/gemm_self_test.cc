#include "services/npu_worker/operators/gemm_self_test.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kGemmTestRows = 5;
constexpr uint32_t kGemmTestGuardRows = 1;
constexpr uint32_t kGemmTestOutputs = 75;
constexpr uint32_t kGemmTestInputs = 128;
constexpr uint32_t kGemmTestGuard = 0x7FA5A5A5;  // NaNs: no product gives them
constexpr uint32_t kGemmTestCanary = 0x7FDACDAC;
// Answers are sums of 128 products of numbers below 1 in size.  In block floating point each factor is
// rounded by 2^-7 of its block's largest at most, and errors do not add up in one direction.
constexpr double kGemmTestTolerance = 0.25;

// Reproducible numbers in [-1, 1) that bfloat16 holds.
float Number(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t x = a * 0x9E3779B1u ^ b * 0x85EBCA77u ^ c * 0xC2B2AE3Du;
  x = (x ^ x >> 15) * 0x2C1B3C6Du;
  x = (x ^ x >> 12) * 0x297A2D39u;
  const float value = static_cast<float>((x ^ x >> 15) >> 8) * 0x1p-23f - 1.0f;
  return Bf16ToFloat(FloatToBf16(value));
}
float Activation(uint32_t row, uint32_t input) { return Number(row, input, 1); }
float Weight(uint32_t output, uint32_t input) { return Number(output, input, 2); }

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

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
  const auto all = commands_->guarded_output();
  const auto output = commands_->output();
  const auto is = [](uint32_t bits) { return [bits](float value) { return Bits(value) == bits; }; };
  const size_t guards = size_t{kGemmTestGuardRows} * commands_->output_stride();
  if (std::ranges::all_of(output, is(kGemmTestCanary))) {
    return Failure(
        "the NPU reported success and wrote nothing.  Its driver has no hardware below it, or the "
        "package was built for another NPU");
  }
  if (!std::ranges::all_of(all.first(guards), is(kGemmTestGuard)) ||
      !std::ranges::all_of(all.last(guards), is(kGemmTestGuard))) {
    return Failure("the NPU wrote outside its output");
  }
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
  std::ranges::fill(commands_->guarded_output(), std::bit_cast<float>(kGemmTestGuard));
  std::ranges::fill(commands_->output(), std::bit_cast<float>(kGemmTestCanary));
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
