// A hardware context of an NPU through XRT: a device, and an xclbin on it.
//
// XRT's headers and exceptions stay in this folder.  Builds against Debian 12's XRT 2.13
// (load_xclbin, user-pointer buffers of the `normal` kind) and current XRT (hw_context, runlist).  Tested
// on emulations of XRT's noop device and of the amdxdna driver; not verified on hardware.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Any number of the xclbin's kernels run in it (npu_kernel.h): each configures the array for itself, which
// the firmware does when a command is another kernel's than the one before.  On 2.13, which has no
// contexts, the device with the xclbin loaded.
//
// Single-thread.  Do not fork while one is open.  Buffers and runs must not outlive it.
class NpuContext {
 public:
  struct Options {
    uint32_t index = 0;  // of the device
    std::string xclbin_path;
  };

  // How XRT names a device, without a context of it.  Errors as Open.
  static absl::StatusOr<std::string> NameOf(uint32_t index);

  // NOT_FOUND: no device; PERMISSION_DENIED: none that may be opened; RESOURCE_EXHAUSTED: the
  // limit on locked memory, or no hardware context is left; UNAVAILABLE: the firmware does not answer;
  // INVALID_ARGUMENT: the xclbin.  Messages name the fix.
  static absl::StatusOr<std::shared_ptr<NpuContext>> Open(const Options& options);
  ~NpuContext();

  // As XRT names the device; "NPU" where it does not (emulation).
  const std::string& name() const { return name_; }
  // "XRT 2.13.0".
  static std::string XrtVersion();

  // The runs, of any of this context's kernels, borrowed: they must outlive the list.  REQUIRES at least one,
  // and none of a list or of another context.
  absl::StatusOr<NpuRunList> MakeRunList(std::span<NpuRun* const> runs);

 private:
  friend class NpuCode;
  friend class NpuKernel;
  friend class NpuRunList;
  NpuContext();
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string name_ = "NPU";
};

}  // namespace tandem::npu
