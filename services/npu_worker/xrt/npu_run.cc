#include "services/npu_worker/xrt/npu_run.h"

#include <algorithm>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/xrt_objects.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {
namespace {

// XRT takes 0 for "wait for ever".
int64_t Milliseconds(absl::Duration timeout) {
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(timeout));
}

// Calls `start`.  XRT takes a run or a list whose start failed for one that is under way, and never starts it
// again: whatever the reason, the device must be opened again.
template <typename Start>
absl::Status Started(const char* what, Start&& start) {
  const absl::Status status = Guarded(what, std::forward<Start>(start));
  return status.ok() ? status : absl::UnavailableError(status.message());
}

}  // namespace

NpuRun::NpuRun() = default;
NpuRun::NpuRun(NpuRun&&) noexcept = default;
NpuRun& NpuRun::operator=(NpuRun&&) noexcept = default;
NpuRun::~NpuRun() = default;

absl::Status NpuRun::Execute(absl::Duration timeout) {
  TANDEM_RETURN_IF_ERROR(Started("starting an NPU command", [this] { impl_->run.start(); }));
  const absl::Status status = WaitFor(impl_->run, Milliseconds(timeout));
  impl_->is_late = absl::IsUnavailable(status);
  return status;
}

absl::Status NpuRun::SetArguments(const NpuCode& code, std::span<const NpuBuffer* const> data) {
  const NpuCode::Impl& loaded = *code.impl_;
#if NPU_HAS_EXT_BO
  if (loaded.serial != impl_->serial) {
    TANDEM_RETURN_IF_ERROR(
        Guarded("making a command of an ELF", [&] { impl_->run = xrt::run(loaded.kernel); }));
    impl_->serial = loaded.serial;
  }
#endif
  return Guarded("setting an NPU command's arguments", [&] {
    xrt::run& command = impl_->run;
    command.set_arg(0, kXrtRunOpcode);
    if (loaded.form == CodeForm::kInstructions) {
      command.set_arg(kXrtInstructionArgument, loaded.instructions.impl_->bo);
      command.set_arg(2, static_cast<uint32_t>(loaded.num_words));
    } else {
      // The ELF has the instructions.
      command.set_arg(kXrtInstructionArgument, uint64_t{0});
      command.set_arg(2, uint32_t{0});
    }
    for (size_t i = 0; i < data.size(); ++i) {
      command.set_arg(kXrtFirstDataArgument + static_cast<int>(i), data[i]->impl_->bo);
    }
  });
}

NpuRunList::NpuRunList() = default;
NpuRunList::NpuRunList(NpuRunList&&) noexcept = default;
NpuRunList& NpuRunList::operator=(NpuRunList&&) noexcept = default;
NpuRunList::~NpuRunList() = default;

size_t NpuRunList::size() const { return impl_->runs.size(); }

absl::Status NpuRunList::Execute(absl::Duration timeout, std::span<int64_t> run_ns) {
  TANDEM_CHECK(run_ns.size() == impl_->runs.size());
  std::ranges::fill(run_ns, 0);
  absl::Time start = absl::Now();
  const absl::Time deadline = start + timeout;
#if NPU_HAS_EXT_BO
  if (impl_->list) {
    if (!impl_->IsMade()) {
      TANDEM_RETURN_IF_ERROR(Guarded("making a list of NPU commands", [this] { impl_->Make(); }));
    }
    TANDEM_RETURN_IF_ERROR(
        Started("starting a list of NPU commands", [this] { impl_->list.execute(); }));
    const absl::Status status = WaitFor(impl_->list, Milliseconds(timeout));
    impl_->is_late = absl::IsUnavailable(status);
    TANDEM_RETURN_IF_ERROR(status);
    run_ns[0] = absl::ToInt64Nanoseconds(absl::Now() - start);
    return absl::OkStatus();
  }
#endif
  for (size_t i = 0; i < impl_->runs.size(); ++i) {
    TANDEM_RETURN_IF_ERROR(impl_->runs[i]->Execute(deadline - start));
    const absl::Time end = absl::Now();
    run_ns[i] = absl::ToInt64Nanoseconds(end - start);
    start = end;
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu
