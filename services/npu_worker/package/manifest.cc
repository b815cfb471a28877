#include "services/npu_worker/package/manifest.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {
namespace {

constexpr size_t kMaxText = 256;

}  // namespace

absl::Status ManifestObject::CheckMembers(std::initializer_list<std::string_view> names) const {
  for (const auto& [key, value] : object_.items()) {
    if (std::ranges::find(names, key) == names.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: member '%s' is not known", place_, ClientText(key)));
    }
  }
  return absl::OkStatus();
}

const ManifestObject::Json* ManifestObject::Find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() ? nullptr : &*it;
}

absl::StatusOr<std::string> ManifestObject::Text(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_string()) return Wrong(key, "a text");
  std::string text = value->get<std::string>();
  if (text.empty() || text.size() > kMaxText || text.find('\0') != std::string::npos) {
    return Wrong(key, absl::StrFormat("a text of 1 to %d bytes", kMaxText));
  }
  return text;
}

absl::StatusOr<uint32_t> ManifestObject::Number(const char* key, uint32_t min, uint32_t max) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_number_unsigned() || value->get<uint64_t>() < min ||
      value->get<uint64_t>() > max) {
    return Wrong(key, absl::StrFormat("a number from %d to %d", min, max));
  }
  return value->get<uint32_t>();
}

absl::StatusOr<bool> ManifestObject::Flag(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_boolean()) return Wrong(key, "true or false");
  return value->get<bool>();
}

absl::StatusOr<ManifestObject> ManifestObject::Object(const char* key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_object()) return Wrong(key, "an object");
  return ManifestObject(*value, absl::StrFormat("%s %s", place_, key));
}

absl::StatusOr<std::vector<ManifestObject>> ManifestObject::Objects(const char* key,
                                                                    size_t max) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array() || value->empty() || value->size() > max) {
    return Wrong(key, absl::StrFormat("a list of 1 to %d objects", max));
  }
  std::vector<ManifestObject> objects;
  for (const Json& entry : *value) {
    if (!entry.is_object()) return Wrong(key, "a list of objects");
    objects.emplace_back(entry, absl::StrFormat("%s %s[%d]", place_, key, objects.size()));
  }
  return objects;
}

absl::StatusOr<std::vector<std::string>> ManifestObject::Texts(const char* key, size_t max) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array() || value->empty() || value->size() > max) {
    return Wrong(key, absl::StrFormat("a list of 1 to %d texts", max));
  }
  std::vector<std::string> texts;
  for (const Json& entry : *value) {
    if (!entry.is_string()) return Wrong(key, "a list of texts");
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

absl::StatusOr<std::filesystem::path> ManifestObject::File(
    const char* key, const std::filesystem::path& folder) const {
  TANDEM_ASSIGN_OR_RETURN(const std::string name, Text(key));
  const std::filesystem::path path(name);
  if (path != path.filename() || name == "." || name == "..") {
    return Wrong(key, "the name of a file in the package's folder");
  }
  return folder / path;
}

absl::Status ManifestObject::Wrong(std::string_view key, const std::string& expected) const {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: '%s' must be %s", place_, std::string(key), expected));
}

}  // namespace tandem::npu
