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

}  // namespace tandem::loader
