// Reads the disassembly of kernels from standard input and fails where the interpreter does not know
// an instruction: radeon_code_check 780M|890M|8060S.
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "services/gpu_worker/emulator/isa/compiled_code.h"

int main(int argc, char** argv) {
  using tandem::rdna::Gfx;
  const std::string_view chip = argc > 1 ? argv[1] : "";
  const Gfx gfx = chip == "780M" ? Gfx::k1103 : chip == "890M" ? Gfx::k1150 : Gfx::k1151;
  const auto instructions = tandem::rdna::ReadDisassembly(std::cin);
  std::map<std::string, int> faults;
  for (const auto& instruction : instructions) {
    const std::string fault = tandem::rdna::CheckDecoding(gfx, instruction);
    if (!fault.empty()) ++faults[fault];
  }
  for (const auto& [fault, count] : faults) {
    std::printf("radeon_code_check: %s (%d times)\n", fault.c_str(), count);
  }
  std::printf("radeon_code_check: %zu instructions for the %s\n", instructions.size(),
              std::string(chip).c_str());
  return instructions.empty() || !faults.empty() ? 1 : 0;
}
