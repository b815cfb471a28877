#include "services/npu_worker/xrt/control_elf.h"

#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/xrt_status.h"

#if TANDEM_HAS_AIEBU
#include <aiebu/aiebu_assembler.h>
#endif

namespace tandem::npu {

absl::Status CheckControlElf() {
#if TANDEM_HAS_AIEBU
  return absl::OkStatus();
#else
  return absl::UnimplementedError(
      "this program was built without AMD's libaiebu, which makes ELFs of control code: build it "
      "where libxrt-dev 2.25 or later is installed, or use a package whose operators say \"code\": "
      "\"instructions\"");
#endif
}

absl::StatusOr<std::vector<char>> MakeControlElf(std::span<const uint32_t> words) {
  TANDEM_RETURN_IF_ERROR(CheckControlElf());
  std::vector<char> elf;
#if TANDEM_HAS_AIEBU
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  const std::vector<char> transaction(bytes, bytes + words.size_bytes()), none;
  const absl::Status made = Guarded("an ELF of NPU control code", [&] {
    using Assembler = aiebu::aiebu_assembler;
    elf = Assembler(Assembler::buffer_type::blob_instr_transaction, transaction, none, none)
              .get_elf();
  });
  if (!made.ok()) return absl::InvalidArgumentError(made.message());
#else
  (void)words;
#endif
  return elf;
}

}  // namespace tandem::npu
