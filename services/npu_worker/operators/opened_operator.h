// An operator of the package with a context in which it runs.
#pragma once

#include <memory>

#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"

namespace tandem::npu {

struct OpenedOperator {
  // Opened with the operator's xclbin; shared with the backend and with plans.
  std::shared_ptr<NpuDevice> device;
  const NpuOperator* op = nullptr;  // Borrowed; must outlive what uses it.
};

}  // namespace tandem::npu
