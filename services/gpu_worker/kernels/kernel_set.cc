#include "services/gpu_worker/kernels/kernel_set.h"

#include "services/common/base/status_macros.h"

namespace tandem::gpu {

absl::StatusOr<std::unique_ptr<KernelSet>> KernelSet::Create(const vulkan::Device& device,
                                                             const std::string& cache_folder) {
  std::unique_ptr<KernelSet> set(new KernelSet(device));
  set->tuning_ = TuningFor(device.info());
  TANDEM_ASSIGN_OR_RETURN(set->layout_, vulkan::PipelineLayout::Create(device));
  TANDEM_ASSIGN_OR_RETURN(set->cache_, vulkan::PipelineCache::Create(device, cache_folder));
  TANDEM_ASSIGN_OR_RETURN(set->tuning_.matrix.fragments,
                          ProbeFragmentLayout(device, set->layout_, set->cache_->handle()));
  TANDEM_ASSIGN_OR_RETURN(set->tuning_.matrix.narrow,
                          ProbeNarrowMatrices(device, set->layout_, set->cache_->handle()));
  return set;
}

absl::Status KernelSet::Record(const Launch& launch, vulkan::Recorder& recorder) {
  const Key key{launch.kernel, launch.constants};
  auto it = pipelines_.find(key);
  if (it == pipelines_.end()) {
    KernelTraits traits = Traits(launch.kernel);
    const auto replaced = replaced_.find(launch.kernel);
    if (replaced != replaced_.end()) traits.spirv = replaced->second;
    TANDEM_ASSIGN_OR_RETURN(vulkan::Pipeline pipeline,
                            vulkan::Pipeline::Create(device_, layout_, cache_->handle(),
                                                     traits.name, traits.spirv, launch.constants));
    it = pipelines_.emplace(key, std::move(pipeline)).first;
  }
  if (launch.texels) TANDEM_RETURN_IF_ERROR(recorder.BindTexels(*launch.texels));
  recorder.Dispatch(it->second, std::span(launch.push).first(launch.push_bytes), launch.groups_x,
                    launch.groups_y);
  return absl::OkStatus();
}

}  // namespace tandem::gpu
