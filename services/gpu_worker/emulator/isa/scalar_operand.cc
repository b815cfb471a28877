#include "services/gpu_worker/emulator/isa/scalar_operand.h"

#include <array>

#include "services/gpu_worker/emulator/isa/numbers.h"

namespace tandem::rdna {
namespace {

// 0.5, -0.5, 1, -1, 2, -2, 4, -4, 1/(2 pi): codes 240 to 248.
constexpr std::array<uint32_t, 9> kConstants32 = {0x3f000000, 0xbf000000, 0x3f800000,
                                                  0xbf800000, 0x40000000, 0xc0000000,
                                                  0x40800000, 0xc0800000, 0x3e22f983};
constexpr std::array<uint16_t, 9> kConstants16 = {0x3800, 0xb800, 0x3c00, 0xbc00, 0x4000,
                                                  0xc000, 0x4400, 0xc400, 0x3118};
constexpr std::array<uint64_t, 9> kConstants64 = {
    0x3fe0000000000000, 0xbfe0000000000000, 0x3ff0000000000000,
    0xbff0000000000000, 0x4000000000000000, 0xc000000000000000,
    0x4010000000000000, 0xc010000000000000, 0x3fc45f306dc9c882};

bool IsFloatConstant(uint32_t code) { return code >= kFloatConstants && code <= 248; }

int32_t IntegerConstant(uint32_t code) {
  return code <= 192 ? static_cast<int32_t>(code) - kZero : 192 - static_cast<int32_t>(code);
}

bool Is16(Type type) {
  return type == Type::kB16 || type == Type::kM16 || type == Type::kF16 || type == Type::kP16;
}

}  // namespace

bool IsKnownScalarSource(uint32_t code) {
  return code <= 208 || IsFloatConstant(code) || (code >= kVccZero && code <= kScc) ||
         code == kLiteral;
}

uint32_t ReadScalar32(const Wave& wave, const Instruction& instruction, uint32_t code, Type type) {
  if (code < kZero) return wave.Sgpr(code);
  if (code <= 208) return static_cast<uint32_t>(IntegerConstant(code));
  if (IsFloatConstant(code)) {
    const uint32_t index = code - kFloatConstants;
    return Is16(type) ? kConstants16[index] : kConstants32[index];
  }
  switch (code) {
    case kVccZero:
      return wave.MaskAt(kVccLo) == 0 ? 1 : 0;
    case kExecZero:
      return wave.Exec() == 0 ? 1 : 0;
    case kScc:
      return wave.scc ? 1 : 0;
    default:
      return instruction.literal;
  }
}

uint64_t ReadScalar64(const Wave& wave, const Instruction& instruction, uint32_t code, Type type) {
  if (code < kZero) return wave.Scalar64(code);
  if (code <= 208) return static_cast<uint64_t>(int64_t{IntegerConstant(code)});
  if (IsFloatConstant(code)) return kConstants64[code - kFloatConstants];
  if (code != kLiteral) return ReadScalar32(wave, instruction, code);
  const uint64_t literal = instruction.literal;
  if (type == Type::kF64) return literal << 32;
  if (type == Type::kI64) return static_cast<uint64_t>(int64_t{static_cast<int32_t>(literal)});
  return literal;
}

}  // namespace tandem::rdna
