// Launches whose workgroups are counted, so that those of the next can wait for them without a
// barrier: shaders/include/phase.glsl.
#pragma once

#include <cstddef>
#include <cstdint>

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

// What is added to the address of a phase's counter in the push constants.
inline constexpr uint64_t kPhaseWaits = 1, kPhaseCounts = 2;
inline constexpr size_t kPhaseOffset = vulkan::kPushConstantBytes - sizeof(uint64_t);

bool CountsPhases(KernelId kernel);

// Makes the launch part of the phase whose counter is at `counter`; `waits`: for the one before.
// REQUIRES CountsPhases(launch.kernel).
void SetPhase(Launch& launch, uint64_t counter, bool waits);
// How often a wait looks at the counter before it is given up.  REQUIRES SetPhase.
void SetMostPolls(Launch& launch, uint32_t polls);

}  // namespace tandem::gpu
