// The decoded instructions of a dispatch's code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "services/gpu_worker/emulator/isa/instruction.h"

namespace tandem::rdna {

// Decodes an instruction when it is first met.  Single-thread: each thread has its own.
class Program {
 public:
  // Borrowed; must outlive this.
  Program(Gfx gfx, uint64_t code, Memory& memory) : gfx_(gfx), code_(code), memory_(memory) {}

  // nullptr: there is none; `why` describes the words.
  const Instruction* At(uint64_t pc, std::string& why) {
    const uint64_t index = (pc - code_) / 4;
    if (index < instructions_.size() && instructions_[index] != nullptr) {
      return instructions_[index];
    }
    return DecodeAt(pc, why);
  }

 private:
  const Instruction* DecodeAt(uint64_t pc, std::string& why);

  Gfx gfx_;
  uint64_t code_;
  Memory& memory_;
  std::deque<Instruction> storage_;
  std::vector<const Instruction*> instructions_;  // by their word behind code_
};

}  // namespace tandem::rdna
