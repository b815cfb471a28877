// v_wmma: D = A x B + C of 16 x 16 matrices, by all lanes of a wave.
//
//   A  lane l has row l % 16, its 16 numbers in consecutive registers, the first in the low bits
//   B  lane l has column l % 16, in the same way
//   C, D  register r of lane l has column l % 16 of row r * (lanes / 16) + l / 16
//
// Lanes 16 and on must repeat A and B of lanes 0 to 15; a wave whose lanes do not faults.  C and D
// of 16 bits are in the half of a register that op_sel bit 2 chooses.
//
// The hardware's order of summing is not published.  Here float sums are made in double and rounded
// once.  EXEC is not looked at.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

constexpr int kSize = 16;

enum class Number { kF16, kBf16, kI8, kI4 };
enum class Sum { kF32, kF16, kBf16, kI32 };

constexpr int BitsOf(Number number) {
  return number == Number::kI8 ? 8 : number == Number::kI4 ? 4 : 16;
}

template <class Value>
using Matrix = std::array<std::array<Value, kSize>, kSize>;

template <Number kNumber>
double NumberOf(uint32_t bits, bool is_signed) {
  if constexpr (kNumber == Number::kF16) {
    return HalfToFloat(bits);
  } else if constexpr (kNumber == Number::kBf16) {
    return Bf16ToFloat(bits);
  } else {
    return is_signed ? SignExtend(bits, BitsOf(kNumber)) : static_cast<int32_t>(bits);
  }
}

// Row (of A) or column (of B) `line` of source `index`; false: the lanes that repeat it differ.
template <Number kNumber>
bool LoadOperand(Wave& wave, const Instruction& instruction, int index, Matrix<double>& out) {
  constexpr int kPerRegister = 32 / BitsOf(kNumber);
  constexpr uint32_t kMask = BitsOf(kNumber) == 16 ? 0xffff : (1u << BitsOf(kNumber)) - 1;
  constexpr bool kIsFloat = kNumber == Number::kF16 || kNumber == Number::kBf16;
  const bool negates_even = (instruction.neg >> index & 1) != 0;
  const bool negates_odd = (instruction.abs >> index & 1) != 0;
  for (int word = 0; word < kSize / kPerRegister; ++word) {
    const uint32_t* lanes = wave.Vgpr(static_cast<uint32_t>(instruction.src[index] - kVgpr + word));
    for (int line = 0; line < kSize; ++line) {
      for (int copy = line + kSize; copy < wave.lanes; copy += kSize) {
        if (lanes[copy] == lanes[line]) continue;
        wave.Fail(std::string(instruction.name) + ": lane " + std::to_string(copy) + " of " +
                  (index == 0 ? "A" : "B") + " is not a copy of lane " + std::to_string(line));
        return false;
      }
      for (int part = 0; part < kPerRegister; ++part) {
        const uint32_t bits = lanes[line] >> (part * BitsOf(kNumber)) & kMask;
        double value = NumberOf<kNumber>(bits, negates_even);
        if (kIsFloat && (part % 2 == 0 ? negates_even : negates_odd)) value = -value;
        out[line][word * kPerRegister + part] = value;
      }
    }
  }
  return true;
}

// C's element in register `word` of a lane.
template <Sum kSum>
double LoadAddend(const Wave& wave, const Instruction& instruction, int word, int lane) {
  const uint32_t code = instruction.src[2];
  constexpr bool kIsHalf = kSum == Sum::kF16 || kSum == Sum::kBf16;
  uint32_t bits = code < kVgpr
                      ? ReadScalar32(wave, instruction, code, kIsHalf ? Type::kP16 : Type::kF32)
                      : wave.Vgpr(code - kVgpr + static_cast<uint32_t>(word))[lane];
  if (kSum == Sum::kI32) return static_cast<int32_t>(bits);
  const bool high = kIsHalf && code >= kVgpr && (instruction.op_sel & 4) != 0;
  if (kIsHalf) bits = high ? bits >> 16 : bits & 0xffff;
  double value = kSum == Sum::kF32   ? AsFloat(bits)
                 : kSum == Sum::kF16 ? HalfToFloat(bits)
                                     : Bf16ToFloat(bits);
  if ((instruction.abs & 4) != 0) value = std::fabs(value);
  if ((instruction.neg & 4) != 0) value = -value;
  return value;
}

template <Sum kSum>
uint32_t ResultBits(double value, bool clamp) {
  if constexpr (kSum == Sum::kI32) {
    const auto sum = static_cast<int64_t>(value);
    return clamp ? Saturate<int32_t>(sum) : static_cast<uint32_t>(sum);
  } else if constexpr (kSum == Sum::kF16) {
    return DoubleToHalf(value);
  } else if constexpr (kSum == Sum::kBf16) {
    return FloatToBf16(static_cast<float>(value));
  } else {
    return AsBits(static_cast<float>(value));
  }
}

template <Number kNumber, Sum kSum>
void MatrixHandler(Wave& wave, const Instruction& instruction) {
  if (instruction.src[0] < kVgpr || instruction.src[1] < kVgpr) {
    wave.Fail(std::string(instruction.name) + ": A and B must be vector registers");
    return;
  }
  Matrix<double> a, b_columns, b, product = {};
  if (!LoadOperand<kNumber>(wave, instruction, 0, a)) return;
  if (!LoadOperand<kNumber>(wave, instruction, 1, b_columns)) return;
  for (int k = 0; k < kSize; ++k) {
    for (int column = 0; column < kSize; ++column) b[k][column] = b_columns[column][k];
  }
  for (int row = 0; row < kSize; ++row) {
    for (int k = 0; k < kSize; ++k) {
      const double factor = a[row][k];
      for (int column = 0; column < kSize; ++column) {
        product[row][column] += factor * b[k][column];
      }
    }
  }
  const int rows_per_register = wave.lanes / kSize;
  std::array<Lanes32, 8> out;
  for (int word = 0; word < kSize / rows_per_register; ++word) {
    for (int lane = 0; lane < wave.lanes; ++lane) {
      const int row = word * rows_per_register + lane / kSize;
      const double sum =
          product[row][lane % kSize] + LoadAddend<kSum>(wave, instruction, word, lane);
      out[word][lane] = ResultBits<kSum>(sum, instruction.clamp);
    }
  }
  for (int word = 0; word < kSize / rows_per_register; ++word) {
    const auto vgpr = static_cast<uint32_t>(instruction.dst + word);
    if (kSum == Sum::kF16 || kSum == Sum::kBf16) {
      WriteLanes16(wave, vgpr, (instruction.op_sel & 4) != 0, out[word].data(), wave.LaneMask());
    } else {
      WriteLanes32(wave, vgpr, out[word].data(), wave.LaneMask());
    }
  }
}

const Entry kMatrices[] = {
    Special(64, "v_wmma_f32_16x16x16_f16", &MatrixHandler<Number::kF16, Sum::kF32>, 3,
            Kind::kMatrix),
    Special(65, "v_wmma_f32_16x16x16_bf16", &MatrixHandler<Number::kBf16, Sum::kF32>, 3,
            Kind::kMatrix),
    Special(66, "v_wmma_f16_16x16x16_f16", &MatrixHandler<Number::kF16, Sum::kF16>, 3,
            Kind::kMatrix),
    Special(67, "v_wmma_bf16_16x16x16_bf16", &MatrixHandler<Number::kBf16, Sum::kBf16>, 3,
            Kind::kMatrix),
    Special(68, "v_wmma_i32_16x16x16_iu8", &MatrixHandler<Number::kI8, Sum::kI32>, 3,
            Kind::kMatrix),
    Special(69, "v_wmma_i32_16x16x16_iu4", &MatrixHandler<Number::kI4, Sum::kI32>, 3,
            Kind::kMatrix),
};

}  // namespace

Table MatrixTable() { return kMatrices; }

}  // namespace tandem::rdna
