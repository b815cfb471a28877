// The "instruction sequences" of the emulated NPU's kernel package: eight words that say which
// kernel runs and what it was made for.  (A real package's sequences are mlir-aie's; the host
// treats both as opaque.)
#pragma once

#include <array>
#include <cstdint>

namespace tandem::npu::emulator {

inline constexpr uint32_t kInstructionMagic = 0x49504E54;  // "TNPI"
enum class KernelKind : uint32_t { kAttend = 1, kOut = 2 };

struct Instructions {
  uint32_t magic = kInstructionMagic;
  uint32_t version = 1;
  KernelKind kind = KernelKind::kAttend;
  uint32_t head_dim = 0;       // kAttend
  uint32_t max_positions = 0;  // kAttend: the length bucket
  uint32_t weight_dtype = 0;   // kOut: tandem::DType
  uint32_t reserved[2] = {};
};
static_assert(sizeof(Instructions) == 32);
inline constexpr uint32_t kNumInstructionWords = sizeof(Instructions) / sizeof(uint32_t);

}  // namespace tandem::npu::emulator
