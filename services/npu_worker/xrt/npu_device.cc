#include "services/npu_worker/xrt/npu_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/device_access.h"
#include "services/npu_worker/xrt/xrt_objects.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {
namespace {

// `status` with what to do about it.
absl::Status WithRemedy(absl::StatusCode code, const absl::Status& status, const char* remedy) {
  return absl::Status(code, absl::StrFormat("%s: %s", std::string(status.message()), remedy));
}

#if NPU_HAS_HW_CONTEXT
// The driver tells by an errno alone why it gives no context.
absl::Status ContextStatus(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    return WithRemedy(
        absl::StatusCode::kResourceExhausted, status,
        "all of the NPU's contexts are in use (6 on a Ryzen AI 7040 or 8040, 16 on a 300), or the "
        "kernels need more columns than it has: end other programs that use the NPU "
        "(xrt-smi examine --report aie-partitions lists them)");
  }
  if (absl::IsUnavailable(status)) {
    return WithRemedy(
        absl::StatusCode::kUnavailable, status,
        "the NPU's firmware does not answer: load its driver again (modprobe -r amdxdna "
        "&& modprobe amdxdna), or restart the machine");
  }
  return status;
}
#endif

absl::Status OpenXrt(uint32_t index, xrt::device& device) {
  if (!IsEmulated()) {
    TANDEM_RETURN_IF_ERROR(CheckDeviceNode("/dev/accel"));
    TANDEM_RETURN_IF_ERROR(CheckLockedMemory(LockedMemoryLimit(), kMinLockedBytes));
  }
  const absl::Status opened = Guarded("XRT", [&] { device = xrt::device(index); });
  if (opened.ok()) return absl::OkStatus();
  return absl::NotFoundError(absl::StrFormat(
      "%s has no NPU %d: %s (2.13 drives none; libxrt-npu2 of Debian 13's backports and AMD's "
      "packages do)",
      NpuDevice::XrtVersion(), index, std::string(opened.message())));
}

// Emulations answer no queries.
std::string NameOfXrt(const xrt::device& device) {
  std::string name = "NPU";
  (void)Guarded("name", [&] { name = device.get_info<xrt::info::device::name>(); });
  return name;
}

}  // namespace

struct NpuDevice::Impl {
  xrt::device device;
#if NPU_HAS_HW_CONTEXT
  xrt::hw_context context;
#endif
  xrt::kernel kernel;

  // Group ids carry the context's slot: asked for, never assumed.
  xrt::memory_group Group(int index) const {
    return kernel.group_id(kXrtFirstDataArgument + index);
  }
  xrt::bo Make(size_t bytes, xrt::bo::flags flags, xrt::memory_group group) const {
#if NPU_HAS_HW_CONTEXT
    return xrt::bo(context, bytes, flags, group);
#else
    return xrt::bo(device, bytes, flags, group);
#endif
  }
  absl::Status OpenKernel(const xrt::xclbin& xclbin, const std::string& name,
                          const std::string& what) {
#if NPU_HAS_HW_CONTEXT
    xrt::uuid uuid;
    TANDEM_RETURN_IF_ERROR(Guarded(what, [&] { uuid = device.register_xclbin(xclbin); }));
    TANDEM_RETURN_IF_ERROR(ContextStatus(
        Guarded("a hardware context", [&] { context = xrt::hw_context(device, uuid); })));
    return Guarded(what, [&] { kernel = xrt::kernel(context, name); });
#else
    return Guarded(what, [&] {
      const xrt::uuid uuid = device.load_xclbin(xclbin);
      kernel = xrt::kernel(device, uuid, name);
    });
#endif
  }
};

NpuDevice::NpuDevice() = default;
NpuDevice::~NpuDevice() = default;

std::string NpuDevice::XrtVersion() {
#if defined(XRT_VERSION_CODE)
  return absl::StrFormat("XRT %d.%d", XRT_MAJOR(XRT_VERSION_CODE), XRT_MINOR(XRT_VERSION_CODE));
#else
  return "XRT " TANDEM_XRT_VERSION;
#endif
}

absl::StatusOr<std::string> NpuDevice::NameOf(uint32_t index) {
  xrt::device device;
  TANDEM_RETURN_IF_ERROR(OpenXrt(index, device));
  return NameOfXrt(device);
}

absl::StatusOr<std::unique_ptr<NpuDevice>> NpuDevice::Open(const Options& options) {
  std::unique_ptr<NpuDevice> device(new NpuDevice);
  device->impl_ = std::make_unique<Impl>();
  Impl& impl = *device->impl_;
  TANDEM_RETURN_IF_ERROR(OpenXrt(options.index, impl.device));
  device->name_ = NameOfXrt(impl.device);
  const std::string what = absl::StrFormat("xclbin %s", options.xclbin_path);
  xrt::xclbin xclbin;
  absl::Status status = Guarded(what, [&] { xclbin = xrt::xclbin(options.xclbin_path); });
  if (!status.ok()) return absl::InvalidArgumentError(std::string(status.message()));
  bool has_kernel = false;
  TANDEM_RETURN_IF_ERROR(Guarded(what, [&] {
    for (const auto& kernel : xclbin.get_kernels()) {
      has_kernel = has_kernel || kernel.get_name() == options.kernel_name;
    }
  }));
  if (!has_kernel) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s has no kernel '%s'", what, options.kernel_name));
  }
  TANDEM_RETURN_IF_ERROR(
      impl.OpenKernel(xclbin, options.kernel_name, absl::StrFormat("loading %s", what)));
  return device;
}

absl::StatusOr<uint32_t> NpuDevice::MemoryGroup(int index) const {
  uint32_t group = 0;
  TANDEM_RETURN_IF_ERROR(Guarded(absl::StrFormat("the memory group of data buffer %d", index), [&] {
    group = static_cast<uint32_t>(impl_->Group(index)) & 0xFFFF;
  }));
  return group;
}

absl::StatusOr<NpuBuffer> NpuDevice::MakeInstructions(std::span<const uint32_t> words) {
  TANDEM_CHECK(!words.empty());
  NpuBuffer buffer;
  buffer.impl_ = std::make_unique<NpuBuffer::Impl>();
  const absl::Status made = Guarded("an NPU instruction buffer", [&] {
    buffer.impl_->bo = impl_->Make(words.size_bytes(), xrt::bo::flags::cacheable,
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
  buffer.size_ = words.size_bytes();
  std::memcpy(buffer.data_, words.data(), words.size_bytes());
  TANDEM_RETURN_IF_ERROR(buffer.SyncToDevice(0, buffer.size_));
  return buffer;
}

absl::StatusOr<NpuBuffer> NpuDevice::Allocate(int index, size_t bytes) {
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

absl::StatusOr<NpuBuffer> NpuDevice::WrapMapping(int index, const std::byte* data, size_t bytes) {
  NpuBuffer buffer;
  buffer.impl_ = std::make_unique<NpuBuffer::Impl>();
  void* const memory = const_cast<std::byte*>(data);
  TANDEM_RETURN_IF_ERROR(
      Guarded(absl::StrFormat("an NPU buffer over a mapping of %d bytes", bytes), [&] {
#if NPU_HAS_HW_CONTEXT
        buffer.impl_->bo =
            xrt::bo(impl_->context, memory, bytes, xrt::bo::flags::host_only, impl_->Group(index));
#else
        // 2.13 refuses user pointers in host_only buffers.
        buffer.impl_->bo =
            xrt::bo(impl_->device, memory, bytes, xrt::bo::flags::normal, impl_->Group(index));
#endif
      }));
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = bytes;
  return buffer;
}

absl::StatusOr<NpuBuffer> NpuDevice::ImportDmabuf(int index, int fd, size_t bytes) {
  (void)index;  // an import lies where its exporter put it
  NpuBuffer buffer;
  buffer.impl_ = std::make_unique<NpuBuffer::Impl>();
  TANDEM_RETURN_IF_ERROR(Guarded("importing a dmabuf into the NPU", [&] {
    buffer.impl_->bo = xrt::bo(impl_->device, static_cast<xclBufferExportHandle>(fd));
    buffer.size_ = buffer.impl_->bo.size();
  }));
  if (buffer.size_ < bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("dmabuf of %d bytes, expected %d", buffer.size_, bytes));
  }
  return buffer;
}

absl::StatusOr<NpuRun> NpuDevice::MakeRun(const NpuBuffer& instructions, size_t num_words,
                                          std::span<const NpuBuffer* const> data) {
  NpuRun run;
  run.impl_ = std::make_unique<NpuRun::Impl>();
  TANDEM_RETURN_IF_ERROR(
      Guarded("making an NPU command", [&] { run.impl_->run = xrt::run(impl_->kernel); }));
  TANDEM_RETURN_IF_ERROR(run.SetArguments(instructions, num_words, data));
  return run;
}

absl::StatusOr<NpuRunList> NpuDevice::MakeRunList(std::span<NpuRun* const> runs) {
  TANDEM_CHECK(!runs.empty());
  NpuRunList list;
  list.impl_ = std::make_unique<NpuRunList::Impl>();
  list.impl_->runs.assign(runs.begin(), runs.end());
#if NPU_HAS_EXT_BO
  // XRT starts no run that belongs to a list, and one run needs none: it is started by itself.
  if (runs.size() == 1) return list;
  TANDEM_RETURN_IF_ERROR(Guarded("making a list of NPU commands", [&] {
    list.impl_->list = xrt::runlist(impl_->context);
    for (NpuRun* run : runs) list.impl_->list.add(run->impl_->run);
  }));
#endif
  return list;
}

}  // namespace tandem::npu
