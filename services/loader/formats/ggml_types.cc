#include "services/loader/formats/ggml_types.h"

#include <iterator>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/tensor/format_table.h"

namespace tandem::loader {
namespace {

// enum ggml_type of ggml.h; empty: removed from the format.
constexpr std::string_view kGgmlNames[] = {
    "F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
    "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
    "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
    "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
    "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

}  // namespace

std::optional<DType> DTypeOfGgml(uint32_t type) {
  for (const DType dtype : AllDTypes()) {
    if (RowOf(dtype).ggml_type == type) return dtype;
  }
  return std::nullopt;
}

uint32_t GgmlOfDType(DType dtype) { return RowOf(dtype).ggml_type; }

std::string GgmlTypeName(uint32_t type) {
  if (type < std::size(kGgmlNames) && !kGgmlNames[type].empty()) {
    return std::string(kGgmlNames[type]);
  }
  return absl::StrFormat("unknown (%d)", type);
}

std::string SupportedGgmlTypes() {
  return absl::StrJoin(AllDTypes(), ", ", [](std::string* out, DType dtype) {
    out->append(GgmlTypeName(GgmlOfDType(dtype)));
  });
}

}  // namespace tandem::loader
