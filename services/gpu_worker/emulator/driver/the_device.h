// The one emulated Radeon of a process.
#pragma once

#include "services/gpu_worker/emulator/driver/device.h"

namespace tandem::rdna {

// Made by the first call, from the environment (settings.h), and never destroyed: the driver above
// frees buffers in destructors of its own.
Device& TheDevice();

}  // namespace tandem::rdna
