// Operators of the package with their kernels, in contexts in which they run.
#pragma once

#include <map>
#include <memory>

#include "services/common/tensor/dtype.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

struct OpenedOperator {
  std::shared_ptr<NpuKernel> kernel;  // Shared with the backend's tests and with plans.
  const NpuOperator* op = nullptr;    // Borrowed; must outlive what uses it.
};

// By the format of their weights.
using OpenedGemms = std::map<DType, OpenedOperator>;

}  // namespace tandem::npu
