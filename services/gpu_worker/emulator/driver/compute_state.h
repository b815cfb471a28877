// The registers from which the command processor starts compute shaders.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "services/gpu_worker/emulator/driver/pm4.h"
#include "services/gpu_worker/emulator/isa/dispatch.h"

namespace tandem::rdna {

using Size3 = std::array<uint32_t, 3>;

// Thread-compatible.
class ComputeState {
 public:
  // false: there is no such register.
  bool Set(uint32_t index, uint32_t value);
  uint32_t Get(uint32_t index) const { return registers_[index]; }

  // What a dispatch packet runs.  `dimensions`: the packet's, that is the end of the groups in each
  // direction, or of threads if the initiator says so.  Groups at an edge that have fewer threads
  // come as dispatches of their own, up to eight in all; the workgroup ids are those of the whole.
  std::vector<Dispatch> Dispatches(Gfx gfx, const Size3& dimensions, uint32_t initiator) const;

 private:
  std::array<uint32_t, pm4::kShRegisters> registers_ = {};
};

}  // namespace tandem::rdna
