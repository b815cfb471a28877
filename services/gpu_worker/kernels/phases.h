// Dependency counters of launches: workgroups of the next launch wait for a counter instead of a
// barrier (shaders/include/phase.glsl).
#pragma once

#include <cstddef>
#include <cstdint>

#include "services/gpu_worker/kernels/launch.h"

namespace tandem::gpu {

// A phase's counter in device memory.  The counter of the phase before lies right before it.
struct alignas(64) DependencyCounter {
  int32_t left = 0;       // workgroups that have not ended
  int32_t groups = 0;     // all workgroups: the start value of `left`
  uint64_t given_up = 0;  // address of a uint32, set when a wait timed out
  uint32_t waits = 0;     // 1: workgroups of the phase wait for the one before
  uint32_t awaited = 0;   // 1: workgroups of the next phase wait for it
};
static_assert(sizeof(DependencyCounter) == 64);

// Flags in the address of a phase's counter in the push constants.
inline constexpr uint64_t kPhaseWaits = 1, kPhaseCounts = 2;
inline constexpr size_t kPhaseOffset = vulkan::kPushConstantBytes - sizeof(uint64_t);

bool CountsPhases(KernelId kernel);

// Makes the launch part of the phase whose counter is at `counter`; `waits`: for the one before.
// REQUIRES CountsPhases(launch.kernel).
void SetPhase(Launch& launch, uint64_t counter, bool waits);
// How often a wait reads the counter before it times out.  REQUIRES SetPhase.
void SetMostPolls(Launch& launch, uint32_t polls);

}  // namespace tandem::gpu
