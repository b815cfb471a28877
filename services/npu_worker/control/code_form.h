// How control code reaches the device.
#pragma once

#include <cstdint>

namespace tandem::npu {

enum class CodeForm : uint8_t {
  // A buffer that is an argument of the kernel.  The firmware writes data buffers' addresses to the descriptors
  // that it patches.
  kInstructions,
  // An ELF that AMD's libaiebu makes of the same words.  XRT writes the addresses, into a copy for each command.
  kElf,
};

}  // namespace tandem::npu
