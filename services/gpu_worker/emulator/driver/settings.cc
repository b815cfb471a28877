#include "services/gpu_worker/emulator/driver/settings.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace tandem::rdna {
namespace {

uint64_t NumberFrom(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const uint64_t value = std::strtoull(text, &end, 10);
  if (*end != '\0' || *text == '-' || errno != 0) {
    std::fprintf(stderr, "gpu emulator: %s=%s is not a number\n", name, text);
    std::exit(2);
  }
  return value;
}

}  // namespace

Settings Settings::FromEnvironment() {
  Settings settings;
  if (const char* name = std::getenv("GPU_EMU_CHIP"); name != nullptr && *name != '\0') {
    const Chip* chip = FindChip(name);
    if (chip == nullptr) {
      std::fprintf(stderr, "gpu emulator: GPU_EMU_CHIP=%s is unknown; there are %s\n", name,
                   ChipNames().c_str());
      std::exit(2);
    }
    settings.chip = *chip;
  }
  settings.chip.vram_bytes = NumberFrom("GPU_EMU_VRAM_MIB", settings.chip.vram_bytes >> 20) << 20;
  settings.chip.gtt_bytes = NumberFrom("GPU_EMU_GTT_MIB", settings.chip.gtt_bytes >> 20) << 20;
  const unsigned processors = std::max(1u, std::thread::hardware_concurrency());
  settings.threads = static_cast<unsigned>(
      std::clamp<uint64_t>(NumberFrom("GPU_EMU_THREADS", processors), 1, 1024));
  settings.trace = static_cast<int>(NumberFrom("GPU_EMU_TRACE", 0));
  settings.summary = NumberFrom("GPU_EMU_SUMMARY", 0) != 0;
  settings.check_lds = NumberFrom("GPU_EMU_CHECK_LDS", 0) != 0;
  settings.memory_files_are_dmabufs = NumberFrom("GPU_EMU_ALLOW_MEMFD", 0) != 0;
  settings.lose_at = NumberFrom("GPU_EMU_LOSE_AT", 0);
  if (const char* file = std::getenv("GPU_EMU_LOSE_ON"); file != nullptr) settings.lose_on = file;
  settings.hang_ms = NumberFrom("GPU_EMU_HANG_MS", 10'000);
  return settings;
}

}  // namespace tandem::rdna
