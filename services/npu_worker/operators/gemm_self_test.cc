#include "services/npu_worker/operators/gemm_self_test.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/backend/known_answer.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kGemmTestGuardRows = 1;
constexpr uint32_t kGemmTestLastOutputs = 11;  // of the last column
// Scales come for 256 at a time: descriptors that repeat, and a rest.
constexpr uint32_t kGemmTestInputs = 576;
// NaNs: no product gives them.
constexpr Fill<uint32_t> kGemmFill = {.guard = 0x7FA5A5A5, .canary = 0x7FDACDAC};
// Answers are sums of 576 products of numbers of at most 1 in size.  In block floating point each factor is
// rounded by 2^-7 of its block's largest at most, and errors do not add up in one direction.
constexpr double kGemmTestTolerance = 0.4;

// In [-1, 1), and in bfloat16.
float Number(uint32_t a, uint32_t b, uint32_t c) {
  return Bf16ToFloat(FloatToBf16(2.0f * KnownNumber(a, b, c) - 1.0f));
}
float Activation(uint32_t row, uint32_t input) { return Number(row, input, 1); }

// The scale of a block of 32 weights: 2^-exponent, one or two below what makes codes at most 1 in size.
uint32_t ScaleExponent(DType format, uint32_t output, uint32_t block) {
  return (format == DType::kQ8_0 ? 7 : 3) + (output + block) % 2;
}
// From -127 to 127, and from -8 to 7.
int32_t Code(DType format, uint32_t output, uint32_t input) {
  const float number = KnownNumber(output, input, 2);  // [0, 1)
  return format == DType::kQ8_0 ? static_cast<int32_t>(number * 255) - 127
                                : static_cast<int32_t>(number * 16) - 8;
}
// Bfloat16 has each of them.
float Weight(DType format, uint32_t output, uint32_t input) {
  if (format == DType::kBf16) return Number(output, input, 2);
  return std::ldexp(static_cast<float>(Code(format, output, input)),
                    -static_cast<int>(ScaleExponent(format, output, input / 32)));
}

// The orders that array_weights.h says, written down once more.
size_t Bf16Place(uint32_t output, uint32_t input) {
  const size_t tile = output / 64 * (kGemmTestInputs / 64) + input / 64;
  const size_t block = input % 64 / 8 * 8 + output % 64 / 8;
  return ((tile * 64 + block) * 8 + input % 8) * 8 + output % 8;
}
// Of piece `piece` of a row with `num_pieces`, in bytes.
size_t PiecePlace(uint32_t output, uint32_t piece, uint32_t num_pieces) {
  return ((output / 32 * num_pieces + piece) * 32 + output % 32) * size_t{16};
}
// `rows`: outputs, filled up.
void PutQuantised(DType format, size_t rows, uint32_t output, uint32_t input, std::byte* weights) {
  const auto code = static_cast<uint8_t>(Code(format, output, input));
  const bool is_q8 = format == DType::kQ8_0;
  const size_t row_bytes = is_q8 ? kGemmTestInputs : kGemmTestInputs / 2;
  if (is_q8) {
    weights[PiecePlace(output, input / 16, kGemmTestInputs / 16) + input % 16] = std::byte{code};
  } else {
    std::byte& pair =
        weights[PiecePlace(output, input / 32, kGemmTestInputs / 32) + input % 32 % 16];
    const auto nibble = static_cast<uint8_t>(code & 15);
    pair |= std::byte{input % 32 < 16 ? nibble : static_cast<uint8_t>(nibble << 4)};
  }
  const uint32_t block = input / 32;
  const size_t place = rows * row_bytes +
                       PiecePlace(output, block / 8, (kGemmTestInputs + 255) / 256) + block % 8 * 2;
  const auto scale = static_cast<uint16_t>((15 - ScaleExponent(format, output, block)) << 10);
  std::memcpy(weights + place, &scale, sizeof(scale));  // float16
}

std::span<const uint32_t> BitsOf(std::span<const float> values) {
  return {reinterpret_cast<const uint32_t*>(values.data()), values.size()};
}

}  // namespace

uint32_t GemmSelfTest::num_outputs() const {
  return (op_.array.num_columns - 1) * kGemmOutputs + kGemmTestLastOutputs;
}

absl::Status GemmSelfTest::Failure(const std::string& what) const {
  return absl::DataLossError(absl::StrFormat("NPU self-test of '%s': %s", op_.name, what));
}

absl::StatusOr<std::unique_ptr<GemmSelfTest>> GemmSelfTest::Create(
    std::shared_ptr<NpuKernel> kernel, const NpuOperator& op, uint32_t num_rows) {
  std::unique_ptr<GemmSelfTest> test(new GemmSelfTest(std::move(kernel), op, num_rows));
  TANDEM_ASSIGN_OR_RETURN(test->rows_, GemmRows::Create(*test->kernel_, op,
                                                        {.max_rows = num_rows,
                                                         .num_outputs = test->num_outputs(),
                                                         .num_inputs = kGemmTestInputs,
                                                         .guard_rows = kGemmTestGuardRows}));
  TANDEM_ASSIGN_OR_RETURN(
      test->command_,
      GemmCommand::Create(*test->kernel_, op, test->rows_,
                          {.format = op.weight_dtype, .num_outputs = test->num_outputs()}));
  TANDEM_ASSIGN_OR_RETURN(test->weights_, test->command_->MakeWeights());
  test->FillWeights();
  test->Expect();
  TANDEM_RETURN_IF_ERROR(test->weights_.SyncToDevice(0, test->weights_.size()));
  const CommandUse uses[] = {test->use()};
  TANDEM_RETURN_IF_ERROR(test->commands_.Prepare(uses));
  return test;
}

void GemmSelfTest::FillWeights() {
  const DType format = op_.weight_dtype;
  auto* const numbers = reinterpret_cast<uint16_t*>(weights_.data());
  for (uint32_t output = 0; output < num_outputs(); ++output) {
    for (uint32_t input = 0; input < kGemmTestInputs; ++input) {
      if (format == DType::kBf16) {
        numbers[Bf16Place(output, input)] = FloatToBf16(Weight(format, output, input));
      } else {
        PutQuantised(format, op_.array.num_columns * kGemmOutputs, output, input, weights_.data());
      }
    }
  }
}

void GemmSelfTest::Expect() {
  std::vector<float> activations(num_rows_ * kGemmTestInputs);
  for (uint32_t i = 0; i < activations.size(); ++i) {
    activations[i] = Activation(i / kGemmTestInputs, i % kGemmTestInputs);
  }
  expected_.assign(size_t{num_rows_} * num_outputs(), 0.0);
  for (uint32_t n = 0; n < num_outputs(); ++n) {
    for (uint32_t k = 0; k < kGemmTestInputs; ++k) {
      const double weight = Weight(op_.weight_dtype, n, k);
      for (uint32_t row = 0; row < num_rows_; ++row) {
        expected_[row * num_outputs() + n] += activations[row * kGemmTestInputs + k] * weight;
      }
    }
  }
}

absl::Status GemmSelfTest::Check() {
  const auto all = BitsOf(rows_.guarded_output());
  const auto output = rows_.output();
  const size_t guards = size_t{kGemmTestGuardRows} * rows_.output_stride();
  const std::string wrong =
      WrongWrites<uint32_t>(BitsOf(output), {all.first(guards), all.last(guards)}, kGemmFill);
  if (!wrong.empty()) return Failure(wrong);
  for (uint32_t row = 0; row < num_rows_; ++row) {
    for (uint32_t n = 0; n < num_outputs(); ++n) {
      const double expected = expected_[row * num_outputs() + n];
      const double actual = output[size_t{row} * rows_.output_stride() + n];
      if (!(std::abs(actual - expected) <= kGemmTestTolerance)) {
        return Failure(
            absl::StrFormat("output %d of row %d is %g, expected %g", n, row, actual, expected));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status GemmSelfTest::Begin() {
  std::ranges::fill(rows_.guarded_output(), std::bit_cast<float>(kGemmFill.guard));
  std::ranges::fill(rows_.output(), std::bit_cast<float>(kGemmFill.canary));
  TANDEM_RETURN_IF_ERROR(rows_.HandOverOutput());
  const auto activations = rows_.activations();
  for (uint32_t row = 0; row < num_rows_; ++row) {
    for (uint32_t k = 0; k < kGemmTestInputs; ++k) {
      activations[size_t{row} * rows_.input_stride() + k] = FloatToBf16(Activation(row, k));
    }
  }
  return rows_.HandOverRows(num_rows_);
}

absl::Status GemmSelfTest::End() {
  TANDEM_RETURN_IF_ERROR(rows_.TakeBackOutput());
  return Check();
}

absl::Status GemmSelfTest::Run(absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(Begin());
  const CommandUse uses[] = {use()};
  const auto ns = commands_.Execute(uses, num_rows_, timeout);
  if (absl::IsInternal(ns.status())) return Failure(std::string(ns.status().message()));
  if (!ns.ok()) return ns.status();
  return End();
}

}  // namespace tandem::npu
