// Launches in phases: those of one may run side by side, and each begins when the one before is
// over.  Between phases stands a barrier or, where kernels and device are fit for it, a counter
// (shaders/include/phase.glsl), which lets the next phase's workgroups read weights ahead.
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

// The counters of all recordings that may run one after another.  Single-thread.
class PhaseCounters {
 public:
  static absl::StatusOr<std::unique_ptr<PhaseCounters>> Create(const vulkan::Device& device);

  // Index of the next counter; those of a recording's phases follow one another.  None is left: -1.
  int64_t Take();
  uint64_t Address(int64_t index) const;
  // More workgroups of a phase; `waits`: for the phase before.
  void Add(int64_t index, uint32_t groups, bool waits);
  // Sets all counters to what they begin with, before recordings are first submitted.  Whoever
  // counts sets them back.
  absl::Status Begin(const vulkan::CommandPool& pool, const vulkan::PipelineLayout& layout,
                     vulkan::Timeline& timeline) const;
  // For recordings that take the place of all there were.
  void Clear();
  // UNAVAILABLE: a workgroup has given up waiting, and what ran since Clear is worth nothing.  What
  // `kernels` records from then on has barriers.
  absl::Status Check(KernelSet& kernels) const;

 private:
  vulkan::Buffer counters_, given_up_;
  std::vector<PhaseCounter> taken_;
};

class PhaseRecorder {
 public:
  // All borrowed; must outlive this.  `counters`: may be null, and barriers are taken then.
  PhaseRecorder(KernelSet& kernels, PhaseCounters* counters, vulkan::Recorder& recorder)
      : kernels_(kernels),
        counters_(kernels.counts_phases() ? counters : nullptr),
        recorder_(recorder) {}

  // One more launch of the phase.
  absl::Status Record(Launch launch);
  // What is recorded from here on is the next phase.
  void Next();
  absl::Status Run(const Launch& launch);  // a phase of its own
  // After the last: all of it is over where what is recorded after, in whatever way, begins.
  void Close();

 private:
  enum class Due { kNothing, kBarrier, kCounter };

  KernelSet& kernels_;
  PhaseCounters* const counters_;
  vulkan::Recorder& recorder_;
  Due due_ = Due::kNothing;  // before the phase
  bool empty_ = true;        // the phase
  bool counted_ = true;      // all that it has so far
  int64_t own_ = -1;         // the phase's counter
};

}  // namespace tandem::gpu
