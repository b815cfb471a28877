// Pipelines of the kernels in use, built on first demand and kept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "services/gpu_worker/kernels/launch.h"
#include "services/gpu_worker/kernels/tuning.h"
#include "services/gpu_worker/vulkan/command_buffer.h"
#include "services/gpu_worker/vulkan/pipeline.h"
#include "services/gpu_worker/vulkan/pipeline_cache.h"

namespace tandem::gpu {

// Single-thread.
class KernelSet {
 public:
  // `device`: borrowed; must outlive this.  `cache_folder`: see PipelineCache.
  static absl::StatusOr<std::unique_ptr<KernelSet>> Create(const vulkan::Device& device,
                                                           const std::string& cache_folder);

  const Tuning& tuning() const { return tuning_; }
  Tuning& tuning() { return tuning_; }
  const vulkan::PipelineLayout& layout() const { return layout_; }
  // Whether dependency counters separate phases, if kernels support them (phases.h).
  bool counts_phases() const { return tuning_.phase_counters != 0 && !no_dependency_counters_; }
  // Turns them off: the device does not order workgroups as they need.
  void ForbidDependencyCounters() { no_dependency_counters_ = true; }

  // Records one launch; builds its pipeline the first time.
  absl::Status Record(const Launch& launch, vulkan::Recorder& recorder);
  // Replaces a kernel by `spirv`: tests run emulated forms of kernels that the device cannot run.
  // REQUIRES it outlives this.
  void Replace(KernelId kernel, std::span<const uint32_t> spirv) { replaced_[kernel] = spirv; }
  // Saves the driver's compiled pipelines for the next start.
  absl::Status SaveCache() { return cache_->Save(); }

 private:
  explicit KernelSet(const vulkan::Device& device) : device_(device) {}
  using Key = std::pair<KernelId, vulkan::Specialization>;

  const vulkan::Device& device_;  // Borrowed.
  Tuning tuning_;
  bool no_dependency_counters_ = false;
  vulkan::PipelineLayout layout_;
  std::unique_ptr<vulkan::PipelineCache> cache_;
  std::map<Key, vulkan::Pipeline> pipelines_;
  std::map<KernelId, std::span<const uint32_t>> replaced_;
};

}  // namespace tandem::gpu
