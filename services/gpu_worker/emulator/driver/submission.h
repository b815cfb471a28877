// DRM_IOCTL_AMDGPU_CS: a submission comes as a list of chunks.
#pragma once

#include <amdgpu_drm.h>

#include "services/gpu_worker/emulator/driver/device.h"

namespace tandem::rdna {

// Returns 0 and the sequence in `call.out`, or a positive errno.
int SubmitChunks(Device& device, drm_amdgpu_cs& call);

}  // namespace tandem::rdna
