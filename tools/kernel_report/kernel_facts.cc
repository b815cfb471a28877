#include "tools/kernel_report/kernel_facts.h"

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/dtype.h"
#include "tools/kernel_report/constant_names.h"

namespace tandem::report {
namespace {

// A number that the driver tells under a name.
template <typename Number>
absl::Status Take(const CompiledPipeline& pipeline, const char* name, Number& number) {
  const auto value = pipeline.statistics.find(name);
  if (value == pipeline.statistics.end()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the driver has no statistic \"%s\": Mesa 25.0 is needed (scripts/fetch-radv)", name));
  }
  number = static_cast<Number>(value->second);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<KernelFacts> FactsOf(const CompiledPipeline& pipeline, const Chip& chip) {
  KernelFacts facts{.name = PipelineName(pipeline.kernel, pipeline.constants),
                    .kernel = pipeline.kernel,
                    .constants = pipeline.constants,
                    .compiled = pipeline.compiled};
  if (!facts.compiled) return facts;
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "VGPRs", facts.vgprs));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "SGPRs", facts.sgprs));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "Spilled VGPRs", facts.spilled_vgprs));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "Spilled SGPRs", facts.spilled_sgprs));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "Scratch size", facts.scratch_bytes));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "LDS size", facts.lds_bytes));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "Code size", facts.code_bytes));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "Subgroups per SIMD", facts.waves_per_simd));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "Latency", facts.latency));
  TANDEM_RETURN_IF_ERROR(Take(pipeline, "Inverse Throughput", facts.inverse_throughput));
  facts.assembly = ReadAssembly(pipeline.assembly);
  if (facts.assembly.all.total == 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: the driver gives no disassembly", facts.name));
  }
  facts.loop = ClocksOf(facts.assembly.loop, chip.costs);
  return facts;
}

WantedUnit UnitWantedBy(gpu::KernelId kernel, const vulkan::Specialization& constants) {
  using enum gpu::KernelId;
  switch (kernel) {
    case kCoopMatmulShared:
    case kCoopMatmulQuads:
    case kCoopMatmulRows:
    case kTiledCooperative:
    case kTiledQuads:
    case kTiledRows:
    case kChains:
      return WantedUnit::kMatrix;
    case kMatvec: {
      const uint32_t dtype = ConstantOf(kernel, constants, "WEIGHT_DTYPE").value_or(0);
      const bool is_float = dtype == static_cast<uint32_t>(DType::kF16) ||
                            dtype == static_cast<uint32_t>(DType::kBf16) ||
                            dtype == static_cast<uint32_t>(DType::kF32);
      return is_float ? WantedUnit::kAny : WantedUnit::kDot;
    }
    default:
      return WantedUnit::kAny;
  }
}

std::vector<std::string> FaultsOf(const KernelFacts& facts) {
  std::vector<std::string> faults;
  if (!facts.compiled) return faults;
  if (facts.spilled_vgprs > 0) {
    faults.push_back(absl::StrFormat("spills %d vector registers", facts.spilled_vgprs));
  }
  if (facts.spilled_sgprs > 0) {
    faults.push_back(absl::StrFormat("spills %d scalar registers", facts.spilled_sgprs));
  }
  if (facts.scratch_bytes > 0 || facts.assembly.all.scratch > 0) {
    faults.push_back(absl::StrFormat("uses %d bytes of scratch memory a subgroup, %d instructions",
                                     facts.scratch_bytes, facts.assembly.all.scratch));
  }
  const WantedUnit wanted = UnitWantedBy(facts.kernel, facts.constants);
  if (wanted == WantedUnit::kMatrix && facts.assembly.all.matrix == 0) {
    faults.emplace_back("has no matrix instruction (v_wmma)");
  }
  if (wanted == WantedUnit::kDot && facts.assembly.all.dot == 0) {
    faults.emplace_back("has no dot product instruction (v_dot4)");
  }
  return faults;
}

}  // namespace tandem::report
