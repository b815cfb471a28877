// Reads the compiler's disassembly: lines of an instruction, "; " and its words in hexadecimal.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "services/gpu_worker/emulator/isa/dispatch.h"

namespace tandem::rdna {

struct CompiledInstruction {
  std::string text;      // as it was read
  std::string mnemonic;  // without _e32, _e64 and _dpp
  std::vector<uint32_t> words;
};

// Skips lines that are not an instruction: names, labels, data.
std::vector<CompiledInstruction> ReadDisassembly(std::istream& in);

// What the decoder makes of it: empty if it knows the instruction by the same name and length.
std::string CheckDecoding(Gfx gfx, const CompiledInstruction& instruction);

}  // namespace tandem::rdna
