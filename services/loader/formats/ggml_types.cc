#include "services/loader/formats/ggml_types.h"

#include <iterator>
#include <string_view>

#include "absl/strings/str_format.h"

namespace tandem::loader {
namespace {

// Indexed by DType.
constexpr uint32_t kGgmlOfDType[kNumDTypes] = {0, 1, 30, 8, 2, 14, 12, 13, 6, 20};

// enum ggml_type of ggml.h; empty: removed from the format.
constexpr std::string_view kGgmlNames[] = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
    "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

}  // namespace

std::optional<DType> DTypeOfGgml(uint32_t type) {
  for (uint32_t i = 0; i < kNumDTypes; ++i) {
    if (kGgmlOfDType[i] == type) return static_cast<DType>(i);
  }
  return std::nullopt;
}

uint32_t GgmlOfDType(DType dtype) { return kGgmlOfDType[static_cast<uint32_t>(dtype)]; }

std::string GgmlTypeName(uint32_t type) {
  if (type < std::size(kGgmlNames) && !kGgmlNames[type].empty()) {
    return std::string(kGgmlNames[type]);
  }
  return absl::StrFormat("unknown (%d)", type);
}

}  // namespace tandem::loader
