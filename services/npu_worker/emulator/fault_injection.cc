#include "services/npu_worker/emulator/fault_injection.h"

#include <cstdlib>

namespace tandem::npu::emulator {
namespace {

int64_t Number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

}  // namespace

Faults Faults::FromEnvironment() {
  return {.hang_ms = Number("NPU_EMU_HANG_MS"),
          .hang_after = Number("NPU_EMU_HANG_AFTER"),
          .hang_count = Number("NPU_EMU_HANG_COUNT"),
          .wrong_answer = Number("NPU_EMU_WRONG_ANSWER") != 0,
          .overrun = Number("NPU_EMU_OVERRUN") != 0,
          .silent = Number("NPU_EMU_SILENT") != 0,
          .no_user_pointers = Number("NPU_EMU_NO_USER_POINTERS") != 0,
          .lost_interrupt = Number("NPU_EMU_LOST_INTERRUPT"),
          .firmware_timeout = Number("NPU_EMU_FIRMWARE_TIMEOUT"),
          .other_contexts = Number("NPU_EMU_OTHER_CONTEXTS"),
          .gone_after = Number("NPU_EMU_GONE_AFTER"),
          .wrong_after = Number("NPU_EMU_WRONG_AFTER"),
          .refuse_submit = Number("NPU_EMU_REFUSE_SUBMIT"),
          .error_after = Number("NPU_EMU_ERROR_AFTER"),
          .chain_of_one_kernel = Number("NPU_EMU_CHAIN_OF_ONE_KERNEL") != 0};
}

}  // namespace tandem::npu::emulator
