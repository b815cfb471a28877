#include "services/npu_worker/xrt/npu_kernel.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/control_elf.h"
#include "services/npu_worker/xrt/device_access.h"
#include "services/npu_worker/xrt/xrt_objects.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {

struct NpuKernel::Impl {
  NpuContext::Impl& context;  // Borrowed from the kernel's.
  std::string name;
  xrt::kernel kernel;

  // Group ids carry the context's slot: asked for, never assumed.
  xrt::memory_group Group(int index) const {
    return kernel.group_id(kXrtFirstDataArgument + index);
  }
  xrt::bo Make(size_t bytes, xrt::bo::flags flags, xrt::memory_group group) const {
#if NPU_HAS_HW_CONTEXT
    return xrt::bo(context.context, bytes, flags, group);
#else
    return xrt::bo(context.device, bytes, flags, group);
#endif
  }
};

NpuKernel::NpuKernel(std::shared_ptr<NpuContext> context) : context_(std::move(context)) {}
NpuKernel::~NpuKernel() = default;

absl::StatusOr<std::shared_ptr<NpuKernel>> NpuKernel::Open(std::shared_ptr<NpuContext> context,
                                                           const std::string& name) {
  std::shared_ptr<NpuKernel> opened(new NpuKernel(std::move(context)));
  NpuContext::Impl& impl = *opened->context_->impl_;
  bool has_kernel = false;
  TANDEM_RETURN_IF_ERROR(Guarded(impl.what, [&] {
    for (const auto& kernel : impl.xclbin.get_kernels()) {
      has_kernel = has_kernel || kernel.get_name() == name;
    }
  }));
  if (!has_kernel) {
    return absl::InvalidArgumentError(absl::StrFormat("%s has no kernel '%s'", impl.what, name));
  }
  opened->impl_.reset(new Impl{.context = impl, .name = name});
  TANDEM_RETURN_IF_ERROR(
      Guarded(absl::StrFormat("opening kernel '%s' of %s", name, impl.what), [&] {
#if NPU_HAS_HW_CONTEXT
        opened->impl_->kernel = xrt::kernel(impl.context, name);
#else
        opened->impl_->kernel = xrt::kernel(impl.device, impl.xclbin.get_uuid(), name);
#endif
      }));
  return opened;
}

absl::StatusOr<std::shared_ptr<NpuKernel>> NpuKernel::Open(const NpuContext::Options& options,
                                                           const std::string& name) {
  TANDEM_ASSIGN_OR_RETURN(auto context, NpuContext::Open(options));
  return Open(std::move(context), name);
}

absl::StatusOr<uint32_t> NpuKernel::MemoryGroup(int index) const {
  uint32_t group = 0;
  TANDEM_RETURN_IF_ERROR(Guarded(absl::StrFormat("the memory group of data buffer %d", index), [&] {
    group = static_cast<uint32_t>(impl_->Group(index)) & 0xFFFF;
  }));
  return group;
}

absl::StatusOr<NpuCode> NpuKernel::MakeCode(CodeForm form, size_t most_words) {
  TANDEM_CHECK(most_words > 0);
  NpuCode code;
  code.impl_ = std::make_unique<NpuCode::Impl>();
  code.impl_->form = form;
  code.impl_->most_words = most_words;
  if (form == CodeForm::kElf) {
    TANDEM_RETURN_IF_ERROR(CheckControlElf());
#if NPU_HAS_EXT_BO
    code.impl_->context = &impl_->context;
    code.impl_->kernel_name = impl_->name;
#endif
    return code;
  }
  NpuBuffer& buffer = code.impl_->instructions;
  buffer.impl_ = std::make_unique<NpuBuffer::Impl>();
  buffer.size_ = most_words * sizeof(uint32_t);
  const absl::Status made = Guarded("an NPU instruction buffer", [&] {
    buffer.impl_->bo = impl_->Make(buffer.size_, xrt::bo::flags::cacheable,
                                   impl_->kernel.group_id(kXrtInstructionArgument));
    buffer.data_ = buffer.impl_->bo.map<std::byte*>();
  });
  if (absl::IsResourceExhausted(made) || absl::IsInvalidArgument(made)) {
    return WithRemedy(
        absl::StatusCode::kResourceExhausted, made,
        "the NPU's instruction heap is full (64 MiB of a process on a Ryzen AI 7040 or 8040, up to "
        "512 on a 300): use a kernel package with shorter or fewer instruction sequences");
  }
  TANDEM_RETURN_IF_ERROR(made);
  return code;
}

absl::StatusOr<NpuCode> NpuKernel::MakeCode(CodeForm form, std::span<const uint32_t> words) {
  TANDEM_ASSIGN_OR_RETURN(NpuCode code, MakeCode(form, words.size()));
  TANDEM_RETURN_IF_ERROR(code.Load(words));
  return code;
}

absl::StatusOr<NpuBuffer> NpuKernel::Allocate(int index, size_t bytes) {
  NpuBuffer buffer;
  buffer.impl_ = std::make_unique<NpuBuffer::Impl>();
  const absl::Status status = Guarded(absl::StrFormat("an NPU buffer of %d bytes", bytes), [&] {
    buffer.impl_->bo = impl_->Make(bytes, xrt::bo::flags::host_only, impl_->Group(index));
    buffer.data_ = buffer.impl_->bo.map<std::byte*>();
  });
  if (!status.ok()) {
    TANDEM_RETURN_IF_ERROR(CheckLockedMemory(LockedMemoryLimit(), LockedMemory() + bytes));
    return status;
  }
  buffer.size_ = bytes;
  if (!IsEmulated()) std::memset(buffer.data_, 0, bytes);
  TANDEM_RETURN_IF_ERROR(buffer.SyncToDevice(0, bytes));
  return buffer;
}

absl::StatusOr<NpuBuffer> NpuKernel::WrapMapping(int index, const std::byte* data, size_t bytes) {
  NpuBuffer buffer;
  buffer.impl_ = std::make_unique<NpuBuffer::Impl>();
  void* const memory = const_cast<std::byte*>(data);
  TANDEM_RETURN_IF_ERROR(
      Guarded(absl::StrFormat("an NPU buffer over a mapping of %d bytes", bytes), [&] {
#if NPU_HAS_HW_CONTEXT
        buffer.impl_->bo = xrt::bo(impl_->context.context, memory, bytes, xrt::bo::flags::host_only,
                                   impl_->Group(index));
#else
        // 2.13 refuses user pointers in host_only buffers.
        buffer.impl_->bo =
            xrt::bo(impl_->context.device, memory, bytes, xrt::bo::flags::normal, impl_->Group(index));
#endif
      }));
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  return buffer;
}

absl::StatusOr<NpuBuffer> NpuKernel::ImportDmabuf(int index, int fd, size_t bytes) {
  (void)index;  // an import lies where its exporter put it
  NpuBuffer buffer;
  buffer.impl_ = std::make_unique<NpuBuffer::Impl>();
  TANDEM_RETURN_IF_ERROR(Guarded("importing a dmabuf into the NPU", [&] {
    buffer.impl_->bo = xrt::bo(impl_->context.device, static_cast<xclBufferExportHandle>(fd));
    buffer.size_ = buffer.impl_->bo.size();
  }));
  if (buffer.size_ < bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("dmabuf of %d bytes, expected %d", buffer.size_, bytes));
  }
  return buffer;
}

absl::StatusOr<NpuRun> NpuKernel::MakeRun() {
  NpuRun run;
  run.impl_ = std::make_unique<NpuRun::Impl>();
  run.impl_->context = context_.get();
  TANDEM_RETURN_IF_ERROR(
      Guarded("making an NPU command", [&] { run.impl_->run = xrt::run(impl_->kernel); }));
  return run;
}

absl::StatusOr<NpuRun> NpuKernel::MakeRun(const NpuCode& code,
                                          std::span<const NpuBuffer* const> data) {
  TANDEM_ASSIGN_OR_RETURN(NpuRun run, MakeRun());
  TANDEM_RETURN_IF_ERROR(run.SetArguments(code, data));
  return run;
}

}  // namespace tandem::npu
