// Support for the interpreter's tests: machine code from testdata/assembled.txt, a wave to execute
// single instructions with, and memory for whole dispatches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/gpu_worker/emulator/isa/dispatch.h"
#include "services/gpu_worker/emulator/isa/wave.h"

namespace tandem::rdna {

// The words of instructions, one a line, as LLVM assembles them.  Each must be in
// testdata/assembled.txt; assemble_tests.py writes that file from the tests' sources.
std::vector<uint32_t> Assembled(const std::string& lines);

// Memory of several pieces.
class TestMemory : public Memory {
 public:
  std::byte* Find(uint64_t address, uint64_t bytes) override;
  // A piece of zeros, as numbers of 32 bits.
  std::vector<uint32_t>& Map(uint64_t address, size_t words);

 private:
  std::map<uint64_t, std::vector<uint32_t>> pieces_;
};

// A wave with memory and 1 KB of LDS.  All lanes are active, all registers 0.
class TestWave {
 public:
  explicit TestWave(int lanes = 32);

  // Decodes and executes each line once, without branches; returns the first fault.
  std::optional<Fault> Execute(const std::string& lines);
  std::optional<Fault> ExecuteWords(const std::vector<uint32_t>& words);

  Wave& wave() { return wave_; }
  TestMemory& memory() { return memory_; }
  Group& group() { return group_; }
  uint32_t& V(uint32_t vgpr, int lane) { return wave_.Vgpr(vgpr)[lane]; }
  void SetAll(uint32_t vgpr, uint32_t value);
  void SetFloat(uint32_t vgpr, float value);
  float Float(uint32_t vgpr, int lane = 0);

 private:
  TestMemory memory_;
  Dispatch dispatch_;
  Group group_;
  Wave wave_;
};

// A dispatch of this code with memory at `kDataAddress` and its address in s[0:1].
inline constexpr uint64_t kCodeAddress = 0x100000, kDataAddress = 0x200000;
struct TestDispatch {
  TestDispatch(const std::string& lines, uint32_t waves_of_32, size_t data_words);
  std::optional<Fault> Run(unsigned threads = 1);

  TestMemory memory;
  Dispatch dispatch;
  Counters counters;
  std::vector<uint32_t>& data;
};

}  // namespace tandem::rdna
