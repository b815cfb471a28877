// Every instruction that AMD's compiler makes of the kernels is decoded and executed.
// testdata/compiled.txt has them, one line for each form; code_check_test.sh looks at what the
// compiler of this machine makes.  testdata/operations.txt has all operations of the architecture.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <set>

#include "services/common/testing/paths.h"
#include "services/gpu_worker/emulator/isa/compiled_code.h"
#include "services/gpu_worker/emulator/isa/testing.h"

namespace tandem::rdna {
namespace {

std::vector<CompiledInstruction> Instructions(const std::string& name) {
  std::ifstream file(SourcePath("services/gpu_worker/emulator/isa/testdata/" + name));
  return ReadDisassembly(file);
}

TEST(CompiledTest, EveryInstructionIsDecodedUnderItsName) {
  const auto instructions = Instructions("compiled.txt");
  std::set<std::string> names;
  for (const CompiledInstruction& instruction : instructions) {
    for (const Gfx gfx : {Gfx::k1103, Gfx::k1150, Gfx::k1151}) {
      EXPECT_EQ(CheckDecoding(gfx, instruction), "") << instruction.text;
    }
    names.insert(instruction.mnemonic);
  }
  EXPECT_GT(names.size(), 150u);
}

// Any address is mapped.
class Everywhere : public Memory {
 public:
  std::byte* Find(uint64_t, uint64_t bytes) override {
    return bytes <= page_.size() ? page_.data() : nullptr;
  }

 private:
  alignas(64) std::array<std::byte, 1 << 16> page_ = {};
};

TEST(CompiledTest, EveryInstructionIsExecuted) {
  for (const CompiledInstruction& instruction : Instructions("compiled.txt")) {
    TestWave wave;
    Everywhere memory;
    wave.group().memory = &memory;
    const auto fault = wave.ExecuteWords(instruction.words);
    EXPECT_FALSE(fault.has_value()) << instruction.text << ": " << fault->what;
  }
}

// Executed, or known by name as not executed: a kernel of another compiler ends with a name.
TEST(OperationsTest, EveryOneIsKnown) {
  size_t executed = 0, named = 0;
  for (const CompiledInstruction& instruction : Instructions("operations.txt")) {
    const std::string fault = CheckDecoding(Gfx::k1150, instruction);
    if (fault.empty()) {
      ++executed;
    } else {
      EXPECT_NE(fault.find(" is not executed"), std::string::npos) << instruction.text << fault;
      ++named;
    }
  }
  EXPECT_GT(executed, 1000u);
  EXPECT_LT(named, 70u);
}

TEST(OperationsTest, NoneLeavesTheWave) {
  // What stops a wave, or asks for something missing.
  const std::set<std::string> faulting = {"s_sethalt",    "s_trap",       "s_code_end",
                                          "s_getreg_b32", "s_setreg_b32", "s_sendmsg_rtn_b64"};
  for (const int lanes : {32, 64}) {
    for (const CompiledInstruction& instruction : Instructions("operations.txt")) {
      if (!CheckDecoding(Gfx::k1150, instruction).empty()) continue;
      const bool only_32 = instruction.mnemonic.starts_with("v_dual_");
      if (faulting.count(instruction.mnemonic) != 0 || (only_32 && lanes == 64)) continue;
      TestWave wave(lanes);
      Everywhere memory;
      wave.group().memory = &memory;
      const auto fault = wave.ExecuteWords(instruction.words);
      EXPECT_FALSE(fault.has_value()) << instruction.text << ": " << fault->what;
    }
  }
}

}  // namespace
}  // namespace tandem::rdna
