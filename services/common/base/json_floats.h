// Float32 as JSON, without the digits of the float64 that JSON libraries make of it.
#pragma once

#include <span>
#include <string>

namespace tandem {

// "[0.25,-1e-05]": the fewest digits that give each number back.  REQUIRES they are finite.
std::string FloatsToJson(std::span<const float> values);

}  // namespace tandem
