// Typed access to package.json, with the place in every error.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::npu {

// An object of the manifest.  Errors are INVALID_ARGUMENT.
class ManifestObject {
 public:
  using Json = nlohmann::ordered_json;

  // `object`: borrowed; must outlive this.  `place`: where it is, for messages.
  ManifestObject(const Json& object, std::string place)
      : object_(object), place_(std::move(place)) {}

  const std::string& place() const { return place_; }

  // Whether it has members of these names alone.
  absl::Status CheckMembers(std::initializer_list<std::string_view> names) const;
  bool Has(std::string_view key) const { return object_.contains(key); }

  absl::StatusOr<std::string> Text(const char* key) const;  // 1 to 256 bytes
  absl::StatusOr<uint32_t> Number(const char* key, uint32_t min, uint32_t max) const;
  absl::StatusOr<bool> Flag(const char* key) const;
  absl::StatusOr<ManifestObject> Object(const char* key) const;
  absl::StatusOr<std::vector<ManifestObject>> Objects(const char* key, size_t max) const;
  absl::StatusOr<std::vector<std::string>> Texts(const char* key, size_t max) const;
  // A file in `folder`, whose name leads nowhere else.
  absl::StatusOr<std::filesystem::path> File(const char* key,
                                             const std::filesystem::path& folder) const;

  absl::Status Wrong(std::string_view key, const std::string& expected) const;

 private:
  const Json* Find(const char* key) const;

  const Json& object_;  // Borrowed.
  std::string place_;
};

}  // namespace tandem::npu
