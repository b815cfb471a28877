// One kernel of a hardware context, its buffers and commands.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_code.h"
#include "services/npu_worker/xrt/npu_context.h"
#include "services/npu_worker/xrt/npu_run.h"

namespace tandem::npu {

// Keeps its context open.  Single-thread.  Buffers and runs must not outlive it.
class NpuKernel {
 public:
  // INVALID_ARGUMENT: the context's xclbin has no kernel of that name.
  static absl::StatusOr<std::shared_ptr<NpuKernel>> Open(std::shared_ptr<NpuContext> context,
                                                         const std::string& name);
  // In a context of its own.  Errors as NpuContext::Open too.
  static absl::StatusOr<std::shared_ptr<NpuKernel>> Open(const NpuContext::Options& options,
                                                         const std::string& name);
  ~NpuKernel();

  NpuContext& context() const { return *context_; }

  // Id of the memory group that the xclbin connects data argument `index` to.  INVALID_ARGUMENT: the
  // kernel has no such argument.
  absl::StatusOr<uint32_t> MemoryGroup(int index) const;

  // Control code of up to `most_words` words, with none loaded.  RESOURCE_EXHAUSTED: the instruction heap is
  // full; UNIMPLEMENTED: this program makes no ELFs.
  absl::StatusOr<NpuCode> MakeCode(CodeForm form, size_t most_words);
  // With these words loaded.  Errors of NpuCode::Load too.
  absl::StatusOr<NpuCode> MakeCode(CodeForm form, std::span<const uint32_t> words);
  // A zeroed buffer that can be data argument `index`.
  absl::StatusOr<NpuBuffer> Allocate(int index, size_t bytes);
  // A buffer over the caller's memory: a page-aligned, shared mapping.  Borrowed; must outlive
  // the buffer.  Read-only mappings are for the device to read.
  absl::StatusOr<NpuBuffer> WrapMapping(int index, const std::byte* data, size_t bytes);
  // A buffer over a dmabuf.  The descriptor stays the caller's.
  absl::StatusOr<NpuBuffer> ImportDmabuf(int index, int fd, size_t bytes);

  // A command whose arguments are not set: SetArguments comes before it is executed.
  absl::StatusOr<NpuRun> MakeRun();
  // A command: control code, and data buffers in the order of the kernel's arguments.  They must outlive it.
  absl::StatusOr<NpuRun> MakeRun(const NpuCode& code, std::span<const NpuBuffer* const> data);

 private:
  explicit NpuKernel(std::shared_ptr<NpuContext> context);
  struct Impl;
  // Destroyed in the reverse order: XRT's kernel goes before its context.
  const std::shared_ptr<NpuContext> context_;  // Shared with the context's other kernels.
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::npu
