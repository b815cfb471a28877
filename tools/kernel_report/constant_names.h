// The names that a shader gives its specialisation constants, read from its SPIR-V.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "services/gpu_worker/kernels/launch.h"

namespace tandem::report {

// By constant id; those without a name of their own (a workgroup's size, mostly) are left out.
std::map<uint32_t, std::string> ConstantNames(std::span<const uint32_t> spirv);

// "matvec[LOCAL_SIZE=256,WEIGHT_DTYPE=q4_0,ROWS=1]": what a pipeline is, in one line.
std::string PipelineName(gpu::KernelId kernel, const vulkan::Specialization& constants);

// A constant of the kernel by its name; nullopt: the kernel has none of that name, or the pipeline
// does not set it.
std::optional<uint32_t> ConstantOf(gpu::KernelId kernel, const vulkan::Specialization& constants,
                                   const std::string& name);

}  // namespace tandem::report
