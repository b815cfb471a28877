// Executes the packets of indirect buffers, one after another.
//
//   indirect buffer --packets--> CommandProcessor --Dispatch--> execute (the instruction set)
//                                       |--reads, writes--> Memory
//
// Each packet ends before the next begins, and caches are always coherent, so that flushes and
// barriers have no effect.  What graphics alone uses (context and user registers) is accepted and
// not kept.  A packet or a form of one that is not emulated ends the buffer by its name.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/gpu_worker/emulator/driver/chip.h"
#include "services/gpu_worker/emulator/driver/compute_state.h"
#include "services/gpu_worker/emulator/driver/device_clock.h"
#include "services/gpu_worker/emulator/driver/failure.h"
#include "services/gpu_worker/emulator/isa/dispatch.h"

namespace tandem::rdna {

// One a ring: registers keep their values between submissions.  Single-thread.
class CommandProcessor {
 public:
  using Execute = std::function<std::optional<Failure>(const Dispatch&)>;
  struct Options {
    Chip chip = DefaultChip();
    uint64_t hang_ms = 10'000;
    bool trace_packets = false;
  };

  // `memory` and `clock` are borrowed and must outlive this.
  CommandProcessor(Memory& memory, DeviceClock& clock, Execute execute, Options options);

  // The buffer at `address`, `words` words long, and all that it leads to.
  std::optional<Failure> Run(uint64_t address, uint32_t words);

  // Ends a wait for memory that goes on, with a hang.
  void Stop() { stop_.store(true); }

 private:
  using Words = std::span<const uint32_t>;
  using Result = std::optional<Failure>;
  struct Buffer {  // one that is under way
    uint64_t address = 0;
    const uint32_t* words = nullptr;
    uint32_t count = 0, at = 0;
  };

  Result Enter(uint64_t address, uint32_t words, bool replace);
  Result Step();
  Result Packet(uint8_t opcode, Words body);
  Result IndirectBuffer(Words body);
  Result CondExec(Words body);
  Result SetShRegisters(Words body, uint8_t opcode);
  Result LoadShRegisters(Words body);
  Result Event(Words body);
  Result SetPredication(Words body);
  Result DispatchIndirect(Words body);
  Result RunDispatch(const Size3& dimensions, uint32_t initiator);
  // Defined in memory_packets.cc.
  Result WriteData(Words body);
  Result CopyData(Words body);
  Result DmaData(Words body);
  Result ReleaseMem(Words body);
  Result WaitRegMem(Words body);
  // nullptr: `failure` says what was not mapped.
  std::byte* Find(uint64_t address, uint64_t bytes, const char* packet, Result& failure);
  Result Store(uint64_t address, uint64_t value, uint32_t bytes, const char* packet);

  static Result Unknown(std::string what);

  Memory& memory_;
  DeviceClock& clock_;
  Execute execute_;
  Options options_;
  std::atomic<bool> stop_ = false;
  ComputeState compute_;
  uint64_t indirect_base_ = 0;  // SET_BASE
  bool skip_predicated_ = false;
  std::vector<Buffer> buffers_;  // the innermost last
  uint32_t entered_ = 0;
};

}  // namespace tandem::rdna
