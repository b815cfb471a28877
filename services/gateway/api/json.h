// Parses JSON bodies of untrusted clients, and writes JSON for clients.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem::gateway {

// Members are written in the order in which they were added.
using Json = nlohmann::ordered_json;

// Parses a request's body, which must be one object.  INVALID_ARGUMENT: not JSON (with the byte),
// not UTF-8, a lone surrogate, a number no double holds, more than JsonLimits allows.  CANCELLED:
// the client has gone.  Linear in the text's bytes (common/json/guarded_json.h).
absl::StatusOr<Json> ParseJsonObject(std::string_view text);

// One line.  Bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const Json& json);
// The same of an object without its braces, to put beside members that are text already.
// REQUIRES object.is_object() and it is not empty.
std::string DumpJsonMembers(const Json& object);

// "a string", "an array" and so on, for messages.
std::string_view JsonTypeName(const Json& json);

}  // namespace tandem::gateway
