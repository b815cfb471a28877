// The kernel's calls of the amdgpu driver.
#pragma once

#include "services/gpu_worker/emulator/driver/device.h"

namespace tandem::rdna {

// `request` by its number alone: newer drivers pass longer structures.  Returns 0 or a positive
// errno; EINVAL: not known.
int Ioctl(Device& device, unsigned long request, void* argument);

}  // namespace tandem::rdna
