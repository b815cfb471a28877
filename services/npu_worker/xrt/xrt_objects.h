// The XRT objects behind the handles of this folder.  Private to it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/npu_worker/xrt/device_access.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_code.h"
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

struct NpuCode::Impl {
  CodeForm form = CodeForm::kInstructions;
  size_t most_words = 0;
  NpuBuffer instructions;  // kInstructions
  size_t num_words = 0;    // likewise
#if NPU_HAS_EXT_BO
  NpuContext::Impl* context = nullptr;  // kElf; borrowed
  std::string kernel_name;              // likewise
  xrt::kernel kernel;                   // of the ELF that was loaded
#endif
  uint64_t serial = 0;  // kElf: of what was loaded; no other has the same
};

// XRT ends the process when a command is dropped that has not ended.  One whose wait ran out is waited for
// once more before that: the driver gives it up in its time.
struct NpuRun::Impl {
  ~Impl() {
    if (is_late) (void)WaitFor(run, absl::ToInt64Milliseconds(2 * kDriverRecovery));
  }
  const NpuContext* context = nullptr;  // Borrowed.
  xrt::run run;
  uint64_t serial = 0;  // of the ELF that it executes; 0: none
  bool is_late = false;
};

struct NpuRunList::Impl {
  std::vector<NpuRun*> runs;  // Borrowed.
#if NPU_HAS_EXT_BO
  // XRT's list of the commands that the runs have now.  REQUIRES more than one.
  void Make() {
    list = xrt::runlist(context->context);
    serials.clear();
    for (NpuRun* run : runs) {
      list.add(run->impl_->run);
      serials.push_back(run->impl_->serial);
    }
  }
  bool IsMade() const {
    return std::ranges::equal(runs, serials, {}, [](NpuRun* run) { return run->impl_->serial; });
  }
  ~Impl() {
    if (is_late) (void)WaitFor(list, absl::ToInt64Milliseconds(2 * kDriverRecovery));
  }
  NpuContext::Impl* context = nullptr;  // Borrowed.
  xrt::runlist list;                    // empty where there is one run
  std::vector<uint64_t> serials;        // of the commands in the list
  bool is_late = false;
#endif
};

}  // namespace tandem::npu
