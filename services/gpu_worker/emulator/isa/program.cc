#include "services/gpu_worker/emulator/isa/program.h"

#include <array>
#include <cstring>

namespace tandem::rdna {
namespace {

// Larger than any shader.
constexpr uint64_t kMaxWords = uint64_t{16} << 20;
constexpr size_t kMaxInstructionWords = 4;

}  // namespace

const Instruction* Program::DecodeAt(uint64_t pc, std::string& why) {
  const uint64_t index = (pc - code_) / 4;
  if (pc < code_ || index >= kMaxWords || pc % 4 != 0) {
    why = "the program counter left the shader's code";
    return nullptr;
  }
  std::array<uint32_t, kMaxInstructionWords> words = {};
  size_t available = kMaxInstructionWords;
  const std::byte* bytes = nullptr;
  while (available > 0 && bytes == nullptr) {
    bytes = memory_.Find(pc, 4 * available);
    if (bytes == nullptr) --available;
  }
  if (bytes == nullptr) {
    why = "code that is not mapped";
    return nullptr;
  }
  std::memcpy(words.data(), bytes, 4 * available);
  const Instruction instruction = Decode(gfx_, words.data(), available, why);
  if (instruction.handler == nullptr) return nullptr;
  storage_.push_back(instruction);
  if (instructions_.size() <= index) instructions_.resize(index + 1024, nullptr);
  instructions_[index] = &storage_.back();
  return instructions_[index];
}

}  // namespace tandem::rdna
