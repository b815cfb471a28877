// The values of iq4_nl's codes.
#pragma once

#include <cstdint>

namespace tandem {

inline constexpr int8_t kIq4NlValues[16] = {
#include "services/common/tensor/iq4_nl_values.inc"
};

}  // namespace tandem
