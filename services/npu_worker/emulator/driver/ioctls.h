// The amdxdna driver's interface (drm/amdxdna_accel.h, and DRM's for handles, descriptors and waits),
// answered by a DriverClient.
#pragma once

#include "services/npu_worker/emulator/driver/client.h"

namespace tandem::npu::emulator {

// What ioctl(2) does on the device node.  `argument`: the request's structure, checked as the kernel
// checks it; EOPNOTSUPP: a request that is not emulated.
Errno Ioctl(DriverClient& client, unsigned long request, void* argument);

// GET_INFO, GET_ARRAY (ioctl_queries.cc).
Errno GetInfo(DriverClient& client, void* argument);
Errno GetArray(DriverClient& client, void* argument);

}  // namespace tandem::npu::emulator
