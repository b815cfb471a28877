// What the environment asks of the emulated Radeon, read once at start:
//   GPU_EMU_CHIP=780M       which one: 780M (default), 890M, 8060S
//   GPU_EMU_THREADS=n       CPU threads that execute a dispatch (default: all processors)
//   GPU_EMU_VRAM_MIB=n, GPU_EMU_GTT_MIB=n  memory other than the chip's
//   GPU_EMU_TRACE=1         dispatches and submissions to stderr; 2: every packet
//   GPU_EMU_SUMMARY=1       at exit, what was executed, to stderr
//   GPU_EMU_CHECK_LDS=1     two waves that use the same word of LDS without a barrier are a fault
//   GPU_EMU_ALLOW_MEMFD=1   files of memory count as dmabufs, where there is no /dev/udmabuf
// Faults that tests ask for:
//   GPU_EMU_LOSE_AT=n       the device is lost in its n-th submission, counted from 1
//   GPU_EMU_LOSE_ON=FILE    the device is lost in the next submission once FILE exists, which is removed
//   GPU_EMU_HANG_MS=n       a wait for memory that takes longer is a hang (default 10,000)
#pragma once

#include <cstdint>
#include <string>

#include "services/gpu_worker/emulator/driver/chip.h"

namespace tandem::rdna {

struct Settings {
  Chip chip = DefaultChip();
  unsigned threads = 1;
  int trace = 0;
  bool summary = false;
  bool check_lds = false;
  bool memory_files_are_dmabufs = false;
  uint64_t lose_at = 0;  // 0: never
  std::string lose_on;   // empty: never
  uint64_t hang_ms = 10'000;

  // Ends the process with a message if the environment has what cannot be understood.
  static Settings FromEnvironment();
};

}  // namespace tandem::rdna
