// Faults that tests ask the emulated NPU for, through the environment, read once at start:
//   NPU_EMU_HANG_MS=n       a command takes n milliseconds before it is executed
//   NPU_EMU_HANG_AFTER=n    ... but the first n commands do not (default 0)
//   NPU_EMU_HANG_COUNT=n    ... and only n commands do (default: all)
//   NPU_EMU_WRONG_ANSWER=1  the first output value of every command is off by one
//   NPU_EMU_OVERRUN=1       every command writes one value past its output
//   NPU_EMU_SILENT=1        commands report success and do nothing, like XRT's noop device
//   NPU_EMU_NO_USER_POINTERS=1  buffers over the caller's memory are refused
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

  static Faults FromEnvironment();
};

}  // namespace tandem::npu::emulator
