// JSON from strangers: within limits that hold before a tree of it exists, in linear time.
//
// What counts is what parsing costs: values, texts and names, objects and arrays, members of one
// object.  A body of 1 MB within the limits is read in some 20 ms.  The text
// is looked at once, in constant memory; only then is it parsed.  Both stop with the thread's
// CancellationScope.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

inline constexpr size_t kMaxJsonDepth = 64;

struct JsonLimits {
  size_t max_depth = kMaxJsonDepth;
  size_t max_values = size_t{1} << 18;      // of the whole text, names not counted
  size_t max_strings = size_t{1} << 16;     // texts among them, and names
  size_t max_containers = size_t{1} << 14;  // objects and arrays among them
  size_t max_members = size_t{1} << 12;     // of one object
};

// OK, or INVALID_ARGUMENT "at byte N, ...": text that is not UTF-8, half a surrogate pair in an
// escape, or more than `limits` allow.  Syntax is the parser's matter.
absl::Status CheckJson(std::string_view json, const JsonLimits& limits = {});

// The document.  Members keep their order; of members with one name the last one counts, in the
// first one's place.  INVALID_ARGUMENT "at byte N, ..." as CheckJson, or for bad syntax, or for a
// number that no double holds; the message is bounded visible ASCII.  CANCELLED: nobody waits.
// Time O(bytes x log max_members), memory in proportion to the text's bytes.
absl::StatusOr<nlohmann::ordered_json> ParseGuardedJson(std::string_view text,
                                                        const JsonLimits& limits = {});

}  // namespace tandem
