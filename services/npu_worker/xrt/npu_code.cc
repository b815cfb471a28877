#include "services/npu_worker/xrt/npu_code.h"

#include <cstring>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/control_elf.h"
#include "services/npu_worker/xrt/xrt_objects.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {

NpuCode::NpuCode() = default;
NpuCode::NpuCode(NpuCode&&) noexcept = default;
NpuCode& NpuCode::operator=(NpuCode&&) noexcept = default;
NpuCode::~NpuCode() = default;

absl::Status NpuCode::Load(std::span<const uint32_t> words) {
  TANDEM_CHECK(!words.empty() && words.size() <= impl_->most_words);
#if NPU_HAS_EXT_BO
  if (impl_->form == CodeForm::kElf) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<char> elf, MakeControlElf(words));
    TANDEM_RETURN_IF_ERROR(Guarded("loading an ELF of NPU control code", [&] {
      const xrt::module module(xrt::elf(elf.data(), elf.size()));
      impl_->kernel = xrt::ext::kernel(impl_->context->context, module, impl_->kernel_name);
    }));
    static uint64_t last_serial = 0;  // of the device thread
    impl_->serial = ++last_serial;
    return absl::OkStatus();
  }
#endif
  NpuBuffer& buffer = impl_->instructions;
  std::memcpy(buffer.data(), words.data(), words.size_bytes());
  impl_->num_words = words.size();
  return buffer.SyncToDevice(0, words.size_bytes());
}

}  // namespace tandem::npu
