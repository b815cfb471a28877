// Whether numbers fit a format.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "services/common/tensor/dtype.h"

namespace tandem::loader {

// INVALID_ARGUMENT naming the tensor, the number and the way out, where a number is not finite or
// too large for `to`.  `flag`: the one that chooses the tensor's format.
absl::Status CheckRange(const std::string& tensor, DType to, std::span<const float> numbers,
                        std::string_view flag);

}  // namespace tandem::loader
