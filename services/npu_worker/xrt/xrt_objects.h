// The XRT objects behind the handles of this folder.  Private to it.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/npu_worker/xrt/device_access.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_context.h"
#include "services/npu_worker/xrt/npu_run.h"
#include "services/npu_worker/xrt/xrt_features.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {

// mlir-aie's calling convention.
inline constexpr int kXrtInstructionArgument = 1;
inline constexpr int kXrtFirstDataArgument = 3;
inline constexpr uint64_t kXrtRunOpcode = 3;  // run an instruction sequence

struct NpuContext::Impl {
  xrt::device device;
  xrt::xclbin xclbin;
#if NPU_HAS_HW_CONTEXT
  xrt::hw_context context;
#endif
  std::string what;  // the xclbin, for messages
};

struct NpuBuffer::Impl {
  xrt::bo bo;
};

// XRT ends the process when a command is dropped that has not ended.  One whose wait ran out is waited for
// once more before that: the driver gives it up in its time.
struct NpuRun::Impl {
  ~Impl() {
    if (is_late) (void)WaitFor(run, absl::ToInt64Milliseconds(2 * kDriverRecovery));
  }
  const NpuContext* context = nullptr;  // Borrowed.
  xrt::run run;
  bool is_late = false;
};

struct NpuRunList::Impl {
  std::vector<NpuRun*> runs;  // Borrowed.
#if NPU_HAS_EXT_BO
  ~Impl() {
    if (is_late) (void)WaitFor(list, absl::ToInt64Milliseconds(2 * kDriverRecovery));
  }
  xrt::runlist list;  // empty where there is one run
  bool is_late = false;
#endif
};

}  // namespace tandem::npu
