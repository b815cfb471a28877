// The figures of one pipeline on one chip, as plain data: from the compiler's statistics and its
// disassembly.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/kernel_report/assembly.h"
#include "tools/kernel_report/null_driver.h"

namespace tandem::report {

struct KernelFacts {
  std::string name;  // PipelineName
  gpu::KernelId kernel = gpu::KernelId::kEmbed;
  vulkan::Specialization constants;
  bool compiled = false;  // else nothing below is known
  uint32_t vgprs = 0, sgprs = 0;
  uint32_t spilled_vgprs = 0, spilled_sgprs = 0;
  uint32_t scratch_bytes = 0;  // a subgroup
  uint32_t lds_bytes = 0;      // a workgroup
  uint32_t code_bytes = 0;
  uint32_t waves_per_simd = 0;      // subgroups that have registers and shared memory
  uint64_t latency = 0;             // clocks; the compiler's estimate, its own loop counts
  uint64_t inverse_throughput = 0;  // likewise
  AssemblyReport assembly;
  Clocks loop;  // of one pass of the main loop on the chip; zero without one
};

// FAILED_PRECONDITION: the driver lacks one of the numbers, so its version is not supported.
absl::StatusOr<KernelFacts> FactsOf(const CompiledPipeline& pipeline, const Chip& chip);

// Which instruction a pipeline is made for; kAny: no particular one.
enum class WantedUnit : uint8_t { kAny, kDot, kMatrix };
WantedUnit UnitWantedBy(gpu::KernelId kernel, const vulkan::Specialization& constants);

// Faults, a sentence each: registers that spill, scratch memory, and a kernel of dot products or
// matrices without such an instruction.
std::vector<std::string> FaultsOf(const KernelFacts& facts);

}  // namespace tandem::report
