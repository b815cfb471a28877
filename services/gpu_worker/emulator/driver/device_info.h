// Answers to DRM_IOCTL_AMDGPU_INFO.
#pragma once

#include <amdgpu_drm.h>

#include "services/gpu_worker/emulator/driver/device.h"

namespace tandem::rdna {

// Fills as much of the answer as the caller has room for.  Returns 0 or a positive errno: EINVAL for
// a question that is not known.
int AnswerInfo(Device& device, const drm_amdgpu_info& question);

}  // namespace tandem::rdna
