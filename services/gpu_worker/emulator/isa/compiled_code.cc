#include "services/gpu_worker/emulator/isa/compiled_code.h"

#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "services/gpu_worker/emulator/isa/instruction.h"

namespace tandem::rdna {
namespace {

// LLVM's name of an operation, without the encoding that it chose.
std::string Plain(std::string mnemonic) {
  for (const std::string_view suffix : {"_e64_dpp", "_dpp8", "_dpp", "_e32", "_e64"}) {
    if (mnemonic.size() > suffix.size() && mnemonic.ends_with(suffix)) {
      mnemonic.resize(mnemonic.size() - suffix.size());
      break;
    }
  }
  return mnemonic;
}

bool ReadWord(const std::string& text, uint32_t& word) {
  if (text.size() != 8) return false;
  char* end = nullptr;
  word = static_cast<uint32_t>(std::strtoul(text.c_str(), &end, 16));
  return *end == '\0';
}

}  // namespace

std::vector<CompiledInstruction> ReadDisassembly(std::istream& in) {
  std::vector<CompiledInstruction> instructions;
  for (std::string line; std::getline(in, line);) {
    const size_t mark = line.rfind("; ");
    if (mark == std::string::npos) continue;
    CompiledInstruction instruction;
    std::istringstream text(line.substr(0, mark));
    text >> instruction.mnemonic;
    if (instruction.mnemonic.empty() ||
        std::isalpha(static_cast<unsigned char>(instruction.mnemonic[0])) == 0) {
      continue;
    }
    instruction.mnemonic = Plain(instruction.mnemonic);
    instruction.text = line;
    std::istringstream hexadecimal(line.substr(mark + 1));
    uint32_t number = 0;
    for (std::string word; hexadecimal >> word && ReadWord(word, number);) {
      instruction.words.push_back(number);
    }
    if (!instruction.words.empty()) instructions.push_back(std::move(instruction));
  }
  return instructions;
}

std::string CheckDecoding(Gfx gfx, const CompiledInstruction& compiled) {
  std::string unknown;
  const Instruction decoded = Decode(gfx, compiled.words.data(), compiled.words.size(), unknown);
  if (decoded.handler == nullptr) return compiled.mnemonic + ": " + unknown;
  if (decoded.name != compiled.mnemonic) {
    return compiled.mnemonic + ": decoded as " + decoded.name;
  }
  if (decoded.dwords != compiled.words.size()) {
    return compiled.mnemonic + ": decoded with " + std::to_string(decoded.dwords) + " words, has " +
           std::to_string(compiled.words.size());
  }
  return {};
}

}  // namespace tandem::rdna
