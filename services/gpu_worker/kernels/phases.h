// Launches whose workgroups are counted, so that those of the next can wait for them without a
// barrier: shaders/include/phase.glsl.
#pragma once

#include <cstdint>
#include <cstring>

#include "services/gpu_worker/kernels/launch.h"

namespace tandem::gpu {

// A phase's counter in the device's memory.  That of the phase before lies right before it.
struct alignas(64) PhaseCounter {
  int32_t left = 0;       // workgroups that have not ended
  int32_t groups = 0;     // all of them: what `left` begins with
  uint64_t given_up = 0;  // address of a uint32, set where a wait was given up
  uint32_t waits = 0;     // 1: workgroups of the phase wait for the one before
  uint32_t awaited = 0;   // 1: those of the next one wait for it
};
static_assert(sizeof(PhaseCounter) == 64);

// Constant ids in every kernel that counts.
inline constexpr uint32_t kMostPolls = 14;  // of a wait, before it is given up
inline constexpr uint32_t kPhases = 15;

inline bool CountsPhases(KernelId kernel) {
  switch (kernel) {
    case KernelId::kMatvec:
    case KernelId::kAddNormWide:
    case KernelId::kDecode:
      return true;
    default:
      return false;
  }
}

// Makes the launch part of the phase whose counter is at `counter`; `waits`: for the one before.
// REQUIRES CountsPhases(launch.kernel).
inline void SetPhase(Launch& launch, uint64_t counter, bool waits) {
  constexpr size_t kOffset = vulkan::kPushConstantBytes - sizeof(uint64_t);
  constexpr uint64_t kWaits = 1, kCounts = 2;
  const uint64_t phase = counter + kCounts + (waits ? kWaits : 0);
  std::memcpy(launch.push.data() + kOffset, &phase, sizeof(phase));
  launch.push_bytes = vulkan::kPushConstantBytes;
  launch.constants[kPhases] = 1;
}

}  // namespace tandem::gpu
