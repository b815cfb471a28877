// The XRT objects behind the handles of this folder.  Private to it.
#pragma once

#include <vector>

#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_device.h"
#include "services/npu_worker/xrt/npu_run.h"
#include "services/npu_worker/xrt/xrt_features.h"

namespace tandem::npu {

struct NpuBuffer::Impl {
  xrt::bo bo;
};

struct NpuRun::Impl {
  xrt::run run;
};

struct NpuRunList::Impl {
  std::vector<NpuRun*> runs;  // Borrowed.
#if NPU_HAS_EXT_BO
  xrt::runlist list;
#endif
};

}  // namespace tandem::npu
