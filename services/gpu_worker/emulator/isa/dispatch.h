// The emulated Radeon's processors: executes a dispatch of RDNA 3 or RDNA 3.5 machine code, wave by
// wave, on the CPU.  For tests and for --gpu=emulate; no service links it.
//
//   driver half (packets, memory, queues)  --Dispatch-->  Run: waves, instructions, LDS
//                                          <--Memory---
//
// Plain C++ without Abseil: the driver half is preloaded below Mesa's RADV into another process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace tandem::rdna {

enum class Gfx { k1103, k1150, k1151 };

// The GPU's virtual memory.  Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  // The host's pointer to `bytes` bytes at `address`; nullptr: they are not mapped as one piece,
  // and the wave faults.
  virtual std::byte* Find(uint64_t address, uint64_t bytes) = 0;
};

struct Dispatch {
  Gfx gfx = Gfx::k1103;
  uint64_t code = 0;                           // address of the first instruction
  uint32_t rsrc1 = 0, rsrc2 = 0, rsrc3 = 0;    // COMPUTE_PGM_RSRC1 to 3
  std::array<uint32_t, 3> groups = {1, 1, 1};  // x, y, z
  std::array<uint32_t, 3> group_size = {1, 1, 1};
  std::array<uint32_t, 3> first_group = {};  // COMPUTE_START_X, Y, Z
  bool wave32 = true;                        // otherwise waves of 64
  std::array<uint32_t, 32> user_sgprs = {};  // COMPUTE_USER_DATA_0 and on
  uint64_t scratch = 0;                      // address; 0: none
  uint32_t scratch_bytes_per_wave = 0;
  // Also fault where two waves of a workgroup use the same LDS dword, at least one of them writes,
  // and no barrier is between them.
  bool check_lds_races = false;
  // A wave that executes more instructions than this faults, as a hung GPU would; 0: no limit.
  uint64_t instruction_limit = 0;
};

struct Fault {
  std::string what;      // an unknown instruction names itself: its mnemonic, or its words
  uint64_t pc = 0;       // of the instruction
  uint64_t address = 0;  // of memory or LDS; 0: not about an address
  bool unknown = false;  // an instruction, or a form of one, that is not emulated
};

// What was executed, for tests and for the clock of the emulated device.  Run adds to it.
struct Counters {
  uint64_t waves = 0;
  uint64_t instructions = 0;  // all; one that is issued twice for 64 lanes counts once
  uint64_t scalar = 0;        // SOP, without waits and branches
  uint64_t scalar_loads = 0;
  uint64_t vector = 0;  // VOP, VOPD, without the next two
  uint64_t dots = 0;
  uint64_t matrices = 0;  // v_wmma
  uint64_t lds = 0;
  uint64_t loads = 0;  // of global, buffer and scratch memory
  uint64_t stores = 0;
  uint64_t atomics = 0;
  uint64_t waits = 0;  // s_waitcnt, s_delay_alu: without effect
  uint64_t branches = 0;
  uint64_t barriers = 0;
};

// Executes every workgroup.  Workgroups are spread over `threads` threads (at least 1); the waves of
// a workgroup take turns between barriers.  Returns the first fault, and then some workgroups have
// not run.  `counters`: may be nullptr.
std::optional<Fault> Run(const Dispatch& dispatch, Memory& memory, unsigned threads,
                         Counters* counters);

}  // namespace tandem::rdna
