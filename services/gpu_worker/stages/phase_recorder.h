// Records launches in phases.  Launches of a phase may run side by side; a phase begins when the
// one before is over.  A barrier separates two phases or, where kernels and device allow it, a
// dependency counter (shaders/include/phase.glsl), which lets workgroups of the next phase prefetch
// weights.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/kernels/phases.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/timeline.h"

namespace tandem::gpu {

// The dependency counters of all recordings of a model.  Single-thread.
class DependencyCounters {
 public:
  static absl::StatusOr<std::unique_ptr<DependencyCounters>> Create(const vulkan::Device& device);

  // Index of the next free counter; -1 if there is none.  A recording takes consecutive counters.
  int64_t Take();
  uint64_t Address(int64_t index) const;
  // Adds workgroups to a phase.  `waits`: they wait for the phase before.
  void Add(int64_t index, uint32_t groups, bool waits);
  // Sets all counters to their start values, before recordings are first submitted.  Later the
  // workgroups that count reset them.
  absl::Status Begin(const vulkan::CommandPool& pool, const vulkan::PipelineLayout& layout,
                     vulkan::Timeline& timeline) const;
  // Frees all counters, before recordings that replace all others.
  void Clear();
  // UNAVAILABLE: a workgroup's wait timed out, so results since Clear are invalid.  Later
  // recordings of `kernels` have barriers.
  absl::Status Check(KernelSet& kernels) const;

 private:
  vulkan::Buffer counters_, given_up_;
  std::vector<DependencyCounter> taken_;
};

class PhaseRecorder {
 public:
  // All borrowed; must outlive this.  `counters`: null for barriers only.
  PhaseRecorder(KernelSet& kernels, DependencyCounters* counters, vulkan::Recorder& recorder)
      : kernels_(kernels),
        counters_(kernels.counts_phases() ? counters : nullptr),
        recorder_(recorder) {}

  // Adds a launch to the current phase.
  absl::Status Record(Launch launch);
  // Begins the next phase.
  void Next();
  // Records a phase of one launch.
  absl::Status Run(const Launch& launch);
  // Ends the last phase: commands that are recorded later begin when it is over.
  void Close();

 private:
  enum class Due { kNothing, kBarrier, kCounter };

  KernelSet& kernels_;
  DependencyCounters* const counters_;
  vulkan::Recorder& recorder_;
  Due due_ = Due::kNothing;  // before the phase
  bool empty_ = true;        // the phase
  bool counted_ = true;      // all that it has so far
  int64_t own_ = -1;         // the phase's counter
};

}  // namespace tandem::gpu
