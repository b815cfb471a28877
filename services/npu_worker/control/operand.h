// A place in a data buffer of a command.
#pragma once

#include <cstdint>

namespace tandem::npu {

struct Operand {
  uint32_t argument = 0;  // the buffer's number
  uint32_t offset = 0;    // bytes, a multiple of 4
};

}  // namespace tandem::npu
