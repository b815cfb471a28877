#include "services/gpu_worker/emulator/isa/testing.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "services/common/testing/paths.h"
#include "services/gpu_worker/emulator/isa/compiled_code.h"
#include "services/gpu_worker/emulator/isa/numbers.h"

namespace tandem::rdna {
namespace {

// The text before the words, without spaces at its ends.
std::string Trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::map<std::string, std::vector<uint32_t>> ReadAssembled() {
  std::ifstream file(SourcePath("services/gpu_worker/emulator/isa/testdata/assembled.txt"));
  std::map<std::string, std::vector<uint32_t>> words;
  for (const CompiledInstruction& instruction : ReadDisassembly(file)) {
    words[Trimmed(instruction.text.substr(0, instruction.text.rfind("; ")))] = instruction.words;
  }
  return words;
}

}  // namespace

std::vector<uint32_t> Assembled(const std::string& lines) {
  static const auto kWords = ReadAssembled();
  std::vector<uint32_t> code;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    line = Trimmed(line);
    if (line.empty()) continue;
    const auto found = kWords.find(line);
    if (found == kWords.end()) {
      std::cerr << "not in testdata/assembled.txt: " << line << "; run assemble_tests.py\n";
      std::abort();
    }
    code.insert(code.end(), found->second.begin(), found->second.end());
  }
  return code;
}

std::byte* TestMemory::Find(uint64_t address, uint64_t bytes) {
  auto piece = pieces_.upper_bound(address);
  if (piece == pieces_.begin()) return nullptr;
  --piece;
  const uint64_t offset = address - piece->first, size = piece->second.size() * 4;
  if (offset > size || bytes > size - offset) return nullptr;
  return reinterpret_cast<std::byte*>(piece->second.data()) + offset;
}

std::vector<uint32_t>& TestMemory::Map(uint64_t address, size_t words) {
  return pieces_[address] = std::vector<uint32_t>(words);
}

TestWave::TestWave(int lanes) {
  group_.memory = &memory_;
  group_.dispatch = &dispatch_;
  group_.lds.resize(1024);
  wave_.group = &group_;
  wave_.lanes = lanes;
  wave_.vgprs = std::make_unique<std::array<VgprRow, kNumVgprs>>();
  wave_.scratch.resize(64 * static_cast<size_t>(lanes));
  // As RADV sets it: denormals of 16 and 64 bits are kept, those of 32 are not.
  wave_.SetMode(0xc0);
  wave_.SetScalar64(kExecLo, wave_.LaneMask());
}

std::optional<Fault> TestWave::Execute(const std::string& lines) {
  return ExecuteWords(Assembled(lines));
}

std::optional<Fault> TestWave::ExecuteWords(const std::vector<uint32_t>& words) {
  for (size_t at = 0; at < words.size();) {
    std::string unknown;
    const Instruction instruction =
        Decode(Gfx::k1150, words.data() + at, words.size() - at, unknown);
    if (instruction.handler == nullptr) return Fault{.what = unknown, .unknown = true};
    wave_.next_pc = wave_.pc + uint64_t{4} * instruction.dwords;
    instruction.handler(wave_, instruction);
    if (wave_.fault) return wave_.fault;
    at += instruction.dwords;
  }
  return std::nullopt;
}

void TestWave::SetAll(uint32_t vgpr, uint32_t value) {
  for (int lane = 0; lane < wave_.lanes; ++lane) V(vgpr, lane) = value;
}
void TestWave::SetFloat(uint32_t vgpr, float value) { SetAll(vgpr, AsBits(value)); }
float TestWave::Float(uint32_t vgpr, int lane) { return AsFloat(V(vgpr, lane)); }

TestDispatch::TestDispatch(const std::string& lines, uint32_t waves_of_32, size_t data_words)
    : data(memory.Map(kDataAddress, data_words)) {
  const std::vector<uint32_t> code = Assembled(lines);
  memory.Map(kCodeAddress, code.size()) = code;
  dispatch.code = kCodeAddress;
  dispatch.group_size = {32 * waves_of_32, 1, 1};
  // MODE as RADV sets it; 2 user registers, the workgroup's x and size, 1 KB of LDS.
  dispatch.rsrc1 = 0xc0 << 12;
  dispatch.rsrc2 = 2 << 1 | 1 << 7 | 1 << 10 | 2 << 15;
  dispatch.user_sgprs = {static_cast<uint32_t>(kDataAddress), 0};
  dispatch.check_lds_races = true;
  dispatch.instruction_limit = 1'000'000;
}

std::optional<Fault> TestDispatch::Run(unsigned threads) {
  return rdna::Run(dispatch, memory, threads, &counters);
}

}  // namespace tandem::rdna
