// Addresses of FLAT instructions.
#pragma once

#include "services/gpu_worker/emulator/isa/wave.h"

namespace tandem::rdna {

// The memory of each active lane's `bytes` bytes.  Faults, and returns false, if a lane has none.
bool FindLanes(Wave& wave, const Instruction& instruction, uint32_t bytes, LaneAddresses& out);

}  // namespace tandem::rdna
