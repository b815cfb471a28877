// JSON as models saw it in training: one line, with a space after each comma and colon.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::gateway {

// {"city": "Paris", "days": [1, 2]}.  Members keep their order.  REQUIRES nesting that
// ParseGuardedJson allows.
std::string SpacedJson(const nlohmann::ordered_json& json);

// `text` written so if it is JSON within JsonLimits; otherwise nullopt.
std::optional<std::string> AsSpacedJson(std::string_view text);

}  // namespace tandem::gateway
