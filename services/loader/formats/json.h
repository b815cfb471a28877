// JSON from untrusted files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem::loader {

inline constexpr int kMaxJsonDepth = 64;
// A value of two bytes in the text takes 16 and more in memory.  Real files have under 100,000.
inline constexpr uint64_t kMaxJsonValues = uint64_t{1} << 21;

// The document in `text`.  INVALID_ARGUMENT "at byte N: reason" for bad syntax, a name that
// appears twice in an object, more than kMaxJsonDepth levels or kMaxJsonValues values, or anything
// after the document. Never throws; stack use does not depend on the input.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text);

// Typed members of an object; nullopt when absent or null, INVALID_ARGUMENT naming the member,
// the value and what was expected when of another type or outside [min, max].
absl::StatusOr<std::optional<int64_t>> JsonInteger(const nlohmann::json& object,
                                                   std::string_view name, int64_t min, int64_t max);
absl::StatusOr<std::optional<float>> JsonFloat(const nlohmann::json& object, std::string_view name);
absl::StatusOr<std::optional<bool>> JsonBool(const nlohmann::json& object, std::string_view name);
absl::StatusOr<std::optional<std::string>> JsonString(const nlohmann::json& object,
                                                      std::string_view name);
// A member that is an object; nullptr when absent or null.
absl::StatusOr<const nlohmann::json*> JsonObject(const nlohmann::json& object,
                                                 std::string_view name);
// Any member; nullptr when absent or null.
const nlohmann::json* JsonMember(const nlohmann::json& object, std::string_view name);

// A value on one line for people, cut at `max_length` bytes.
std::string PrintJson(const nlohmann::json& value, size_t max_length);

}  // namespace tandem::loader
