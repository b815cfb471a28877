#include "services/npu_worker/xrt/npu_context.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/device_access.h"
#include "services/npu_worker/xrt/xrt_objects.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {
namespace {

#if NPU_HAS_HW_CONTEXT
// The driver tells by an errno alone why it gives no context.
absl::Status ContextStatus(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    return WithRemedy(
        absl::StatusCode::kResourceExhausted, status,
        "all of the NPU's contexts are in use (6 on a Ryzen AI 7040 or 8040, 16 on a 300), or the "
        "kernels need more columns than it has: end other programs that use the NPU "
        "(xrt-smi examine --report aie-partitions lists them), or use a package whose operators "
        "share an xclbin and so a context");
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
      NpuContext::XrtVersion(), index, std::string(opened.message())));
}

// Emulations answer no queries.
std::string NameOfXrt(const xrt::device& device) {
  std::string name = "NPU";
  (void)Guarded("name", [&] { name = device.get_info<xrt::info::device::name>(); });
  return name;
}

}  // namespace

NpuContext::NpuContext() = default;
NpuContext::~NpuContext() = default;

std::string NpuContext::XrtVersion() {
#if defined(XRT_VERSION_CODE)
  return absl::StrFormat("XRT %d.%d", XRT_MAJOR(XRT_VERSION_CODE), XRT_MINOR(XRT_VERSION_CODE));
#else
  return "XRT " TANDEM_XRT_VERSION;
#endif
}

absl::StatusOr<std::string> NpuContext::NameOf(uint32_t index) {
  xrt::device device;
  TANDEM_RETURN_IF_ERROR(OpenXrt(index, device));
  return NameOfXrt(device);
}

absl::StatusOr<std::shared_ptr<NpuContext>> NpuContext::Open(const Options& options) {
  std::shared_ptr<NpuContext> context(new NpuContext);
  context->impl_ = std::make_unique<Impl>();
  Impl& impl = *context->impl_;
  TANDEM_RETURN_IF_ERROR(OpenXrt(options.index, impl.device));
  context->name_ = NameOfXrt(impl.device);
  impl.what = absl::StrFormat("xclbin %s", options.xclbin_path);
  absl::Status status = Guarded(impl.what, [&] { impl.xclbin = xrt::xclbin(options.xclbin_path); });
  if (!status.ok()) return absl::InvalidArgumentError(std::string(status.message()));
  const std::string loading = absl::StrFormat("loading %s", impl.what);
#if NPU_HAS_HW_CONTEXT
  TANDEM_RETURN_IF_ERROR(Guarded(loading, [&] { impl.device.register_xclbin(impl.xclbin); }));
  TANDEM_RETURN_IF_ERROR(ContextStatus(Guarded("a hardware context", [&] {
    impl.context = xrt::hw_context(impl.device, impl.xclbin.get_uuid());
  })));
#else
  TANDEM_RETURN_IF_ERROR(Guarded(loading, [&] { impl.device.load_xclbin(impl.xclbin); }));
#endif
  return context;
}

absl::StatusOr<NpuRunList> NpuContext::MakeRunList(std::span<NpuRun* const> runs) {
  TANDEM_CHECK(!runs.empty());
  // XRT says nothing to a run of another context.
  for (const NpuRun* run : runs) TANDEM_CHECK(run->impl_->context == this);
  NpuRunList list;
  list.impl_ = std::make_unique<NpuRunList::Impl>();
  list.impl_->runs.assign(runs.begin(), runs.end());
#if NPU_HAS_EXT_BO
  // XRT starts no run that belongs to a list, and one run needs none: it is started by itself.
  if (runs.size() == 1) return list;
  TANDEM_RETURN_IF_ERROR(Guarded("making a list of NPU commands", [&] {
    list.impl_->context = impl_.get();
    list.impl_->Make();
  }));
#endif
  return list;
}

}  // namespace tandem::npu
