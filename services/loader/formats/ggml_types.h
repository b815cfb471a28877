// ggml's numbering of tensor types, as GGUF files carry it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "services/common/tensor/dtype.h"

namespace tandem::loader {

// nullopt for types that are not supported.
std::optional<DType> DTypeOfGgml(uint32_t type);
uint32_t GgmlOfDType(DType dtype);
// "Q4_K", or "unknown (99)".
std::string GgmlTypeName(uint32_t type);
// Names of the types that are supported: "F32, F16, BF16, Q8_0".
std::string SupportedGgmlTypes();

}  // namespace tandem::loader
