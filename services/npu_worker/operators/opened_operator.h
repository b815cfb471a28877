// Operators of the package with contexts in which they run.
#pragma once

#include <map>
#include <memory>

#include "services/common/tensor/dtype.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"

namespace tandem::npu {

struct OpenedOperator {
  // Opened with the operator's xclbin; shared with the backend and with plans.
  std::shared_ptr<NpuDevice> device;
  const NpuOperator* op = nullptr;  // Borrowed; must outlive what uses it.
};

// By the format of their weights.
using OpenedGemms = std::map<DType, OpenedOperator>;

}  // namespace tandem::npu
