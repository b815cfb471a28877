// Scalar sources: registers, constants of the code, and the literal after the instruction.
#pragma once

#include <cstdint>

#include "services/gpu_worker/emulator/isa/wave.h"

namespace tandem::rdna {

// What a source's bits mean: constants differ, and only floats have abs, neg and denormals.
enum class Type : uint8_t {
  kNone,
  kB32,  // integers and bits
  kM32,  // moved as it is, but with abs and neg of a float
  kF32,
  kB16,
  kM16,
  kF16,
  kP16,  // two float16
  kB64,
  kI64,  // as kB64, but a literal is sign-extended
  kF64,
};

bool IsKnownScalarSource(uint32_t code);
uint32_t ReadScalar32(const Wave& wave, const Instruction& instruction, uint32_t code,
                      Type type = Type::kB32);
uint64_t ReadScalar64(const Wave& wave, const Instruction& instruction, uint32_t code,
                      Type type = Type::kB64);

}  // namespace tandem::rdna
