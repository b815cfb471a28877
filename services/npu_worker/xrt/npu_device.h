// An NPU through XRT: device, hardware context, one kernel, its buffers and commands.
//
// XRT's headers and exceptions stay in this folder.  Builds against Debian 12's XRT 2.13
// (load_xclbin, user-pointer buffers of the `normal` kind) and current XRT (hw_context, runlist).  Tested
// on emulations of XRT's noop device and of the amdxdna driver; not verified on hardware.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Single-thread.  Do not fork while one is open.  Buffers and runs must not outlive it.
class NpuDevice {
 public:
  struct Options {
    uint32_t index = 0;
    std::string xclbin_path;
    std::string kernel_name;
  };

  // How XRT names a device, without a context of it.  Errors as Open.
  static absl::StatusOr<std::string> NameOf(uint32_t index);

  // NOT_FOUND: no device; PERMISSION_DENIED: none that may be opened; RESOURCE_EXHAUSTED: the
  // limit on locked memory, or no hardware context is left; UNAVAILABLE: the firmware does not answer;
  // INVALID_ARGUMENT: the xclbin or its kernel.  Messages name the fix.
  static absl::StatusOr<std::unique_ptr<NpuDevice>> Open(const Options& options);
  ~NpuDevice();

  // As XRT names it; "NPU" where it does not (emulation).
  const std::string& name() const { return name_; }
  // "XRT 2.13.0".
  static std::string XrtVersion();

  // Id of the memory group that the xclbin connects data argument `index` to.  INVALID_ARGUMENT: the
  // kernel has no such argument.
  absl::StatusOr<uint32_t> MemoryGroup(int index) const;

  // A buffer for instruction words, filled and visible to the device.  RESOURCE_EXHAUSTED: the
  // instruction heap is full.
  absl::StatusOr<NpuBuffer> MakeInstructions(std::span<const uint32_t> words);
  // A zeroed buffer that can be data argument `index`.
  absl::StatusOr<NpuBuffer> Allocate(int index, size_t bytes);
  // A buffer over the caller's memory: a page-aligned, shared mapping.  Borrowed; must outlive
  // the buffer.  Read-only mappings are for the device to read.
  absl::StatusOr<NpuBuffer> WrapMapping(int index, const std::byte* data, size_t bytes);
  // A buffer over a dmabuf.  The descriptor stays the caller's.
  absl::StatusOr<NpuBuffer> ImportDmabuf(int index, int fd, size_t bytes);

  // A command: opcode, instructions, data buffers in the order of the kernel's arguments.
  // The buffers must outlive it.
  absl::StatusOr<NpuRun> MakeRun(const NpuBuffer& instructions, size_t num_words,
                                 std::span<const NpuBuffer* const> data);
  // The runs, borrowed: they must outlive the list.  REQUIRES at least one.
  absl::StatusOr<NpuRunList> MakeRunList(std::span<NpuRun* const> runs);

 private:
  NpuDevice();
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string name_ = "NPU";
};

}  // namespace tandem::npu
