// Faults that tests ask the emulated NPU for, through the environment, read once at start:
//   NPU_EMU_HANG_MS=n       a command takes n milliseconds before it is executed
//   NPU_EMU_HANG_AFTER=n    ... but the first n commands do not (default 0)
//   NPU_EMU_HANG_COUNT=n    ... and only n commands do (default: all)
//   NPU_EMU_WRONG_ANSWER=1  the first output value of every command is off by one
//   NPU_EMU_OVERRUN=1       every command writes one value past its output
//   NPU_EMU_SILENT=1        commands report success and do nothing, like XRT's noop device
//   NPU_EMU_NO_USER_POINTERS=1  buffers over the caller's memory are refused
// The emulated driver alone (driver/):
//   NPU_EMU_LOST_INTERRUPT=n    the n-th command is executed, and its end is not reported
//   NPU_EMU_FIRMWARE_TIMEOUT=n  the firmware leaves the driver's n-th message unanswered
//   NPU_EMU_OTHER_CONTEXTS=n    another process holds n hardware contexts of the whole array
//   NPU_EMU_GONE_AFTER=n        the device is gone after n commands, when the next is submitted
//   NPU_EMU_WRONG_AFTER=n       an array's answers are wrong after n commands of its context
//   NPU_EMU_REFUSE_SUBMIT=n     the driver refuses the n-th submission
//   NPU_EMU_ERROR_AFTER=n       the command behind the first n ends with an error
//   NPU_EMU_CHAIN_OF_ONE_KERNEL=1  all commands of a chain are executed by the first one's kernel
#pragma once

#include <cstdint>

namespace tandem::npu::emulator {

struct Faults {
  int64_t hang_ms = 0;
  int64_t hang_after = 0;
  int64_t hang_count = 0;  // 0: all
  bool wrong_answer = false;
  bool overrun = false;
  bool silent = false;
  bool no_user_pointers = false;
  int64_t lost_interrupt = 0;    // 0: none
  int64_t firmware_timeout = 0;  // 0: none
  int64_t other_contexts = 0;
  int64_t gone_after = 0;     // 0: never
  int64_t wrong_after = 0;    // 0: never
  int64_t refuse_submit = 0;  // 0: none
  int64_t error_after = 0;    // 0: never
  bool chain_of_one_kernel = false;

  static Faults FromEnvironment();
};

}  // namespace tandem::npu::emulator
