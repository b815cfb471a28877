// Reads a JSON object member by member; errors name the member by its path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "services/gateway/api/json.h"

namespace tandem::gateway {

// Whether this value counts as absent: false, "", [] or {}.
bool SaysNothing(const Json& value);

// A null member counts as absent.  The first error is kept; after it all readers return empty
// values, so a caller checks once, at the end.  Members that are never read are ignored.
// Single-thread.
class JsonFields {
 public:
  // `object`, `error`: Borrowed; must outlive this.  `path` is put before names ("messages[3].").
  // REQUIRES object.is_object().
  JsonFields(const Json& object, absl::Status& error, std::string path = "")
      : object_(object), error_(error), path_(std::move(path)) {}

  // The member, or nullptr.
  const Json* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  std::optional<bool> Bool(std::string_view name);
  // Within [low, high].  A whole number may be written as a float: 40.0.
  std::optional<double> Number(std::string_view name, double low, double high);
  std::optional<int64_t> Integer(std::string_view name, int64_t low, int64_t high);
  // An unsigned 64-bit integer's bits; negative ones as two's complement.
  std::optional<uint64_t> Seed(std::string_view name);
  std::optional<std::string> String(std::string_view name);
  // One string, or an array of up to `max_size`.
  std::vector<std::string> Strings(std::string_view name, size_t max_size);
  const Json* Array(std::string_view name);
  const Json* Object(std::string_view name);

  // Errors about `name`.
  void Fail(std::string_view name, std::string_view code, std::string_view message);
  void Missing(std::string_view name);
  void WrongType(std::string_view name, std::string_view expected);
  // For features that the engine lacks: refused, not ignored.
  void Unsupported(std::string_view name, std::string_view why);
  // Error if `name` has a value other than null, false, "", [] or {}.
  void RefuseIfSet(std::string_view name, std::string_view why);
  // Error unless it is absent or equals `only`.
  void RefuseUnless(std::string_view name, const Json& only, std::string_view why);

  bool ok() const { return error_.ok(); }
  absl::Status& error() { return error_; }
  std::string PathOf(std::string_view name) const { return path_ + std::string(name); }

 private:
  const Json& object_;
  absl::Status& error_;
  const std::string path_;
};

}  // namespace tandem::gateway
