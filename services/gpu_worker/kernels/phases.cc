#include "services/gpu_worker/kernels/phases.h"

#include <cstring>

#include "services/gpu_worker/kernels/spirv.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

using spirv::ConstantId;

constexpr auto kKernels = {spirv::Module(shaders::kMatvec), spirv::Module(shaders::kAddNormWide),
                           spirv::Module(shaders::kDecode)};
constexpr uint32_t kPhases = ConstantId("PHASES", kKernels);
constexpr uint32_t kMostPolls = ConstantId("MOST_POLLS", kKernels);

}  // namespace

bool CountsPhases(KernelId kernel) {
  switch (kernel) {
    case KernelId::kMatvec:
    case KernelId::kAddNormWide:
    case KernelId::kDecode:
      return true;
    default:
      return false;
  }
}

void SetPhase(Launch& launch, uint64_t counter, bool waits) {
  const uint64_t phase = counter + kPhaseCounts + (waits ? kPhaseWaits : 0);
  std::memcpy(launch.push.data() + kPhaseOffset, &phase, sizeof(phase));
  launch.push_bytes = vulkan::kPushConstantBytes;
  launch.constants[kPhases] = 1;
}

void SetMostPolls(Launch& launch, uint32_t polls) { launch.constants[kMostPolls] = polls; }

}  // namespace tandem::gpu
