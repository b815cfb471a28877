#include "tools/kernel_report/constant_names.h"

#include <cstring>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/tensor/dtype.h"

namespace tandem::report {
namespace {

constexpr uint32_t kHeaderWords = 5;
constexpr uint32_t kOpName = 5, kOpDecorate = 71, kSpecId = 1;

const std::map<uint32_t, std::string>& NamesOf(gpu::KernelId kernel) {
  static std::map<gpu::KernelId, std::map<uint32_t, std::string>> known;
  const auto [it, added] = known.try_emplace(kernel);
  if (added) it->second = ConstantNames(gpu::Traits(kernel).spirv);
  return it->second;
}

}  // namespace

std::map<uint32_t, std::string> ConstantNames(std::span<const uint32_t> spirv) {
  std::map<uint32_t, std::string> names;    // by id of the result
  std::map<uint32_t, std::string> by_spec;  // by constant id
  for (size_t at = kHeaderWords; at < spirv.size();) {
    const uint32_t words = spirv[at] >> 16, operation = spirv[at] & 0xffff;
    if (words == 0 || at + words > spirv.size()) break;
    if (operation == kOpName && words > 2) {
      const auto* text = reinterpret_cast<const char*>(&spirv[at + 2]);
      names[spirv[at + 1]] = std::string(text, ::strnlen(text, (words - 2) * sizeof(uint32_t)));
    } else if (operation == kOpDecorate && words == 4 && spirv[at + 2] == kSpecId) {
      // Names stand before decorations.
      const auto name = names.find(spirv[at + 1]);
      if (name != names.end() && !name->second.empty()) by_spec[spirv[at + 3]] = name->second;
    }
    at += words;
  }
  return by_spec;
}

std::string PipelineName(gpu::KernelId kernel, const vulkan::Specialization& constants) {
  const auto& names = NamesOf(kernel);
  std::string text;
  for (const auto& [id, value] : constants) {
    const auto name = names.find(id);
    const std::string label = id == gpu::kLocalSize ? "LOCAL_SIZE"
                              : name != names.end() ? name->second
                                                    : absl::StrFormat("c%d", id);
    text += absl::StrFormat("%s%s=", text.empty() ? "" : ",", label);
    const bool is_dtype = label == "WEIGHT_DTYPE" && value < kNumDTypes;
    text += is_dtype ? std::string(Traits(static_cast<DType>(value)).name)
                     : absl::StrFormat("%d", value);
  }
  return absl::StrFormat("%s[%s]", std::string(gpu::Traits(kernel).name), text);
}

std::optional<uint32_t> ConstantOf(gpu::KernelId kernel, const vulkan::Specialization& constants,
                                   const std::string& name) {
  for (const auto& [id, known] : NamesOf(kernel)) {
    if (known != name) continue;
    const auto value = constants.find(id);
    if (value != constants.end()) return value->second;
  }
  return std::nullopt;
}

}  // namespace tandem::report
