#include "services/gateway/constraint/schema/schema_document.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/json/guarded_json.h"

namespace tandem::gateway::constraint {
namespace {

constexpr JsonLimits kLimits = {.max_depth = 128, .max_members = size_t{1} << 14};

int Hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c | 32) >= 'a' && (c | 32) <= 'f') return (c | 32) - 'a' + 10;
  return -1;
}

// %41 becomes A.
std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && Hex(text[i + 1]) >= 0 && Hex(text[i + 2]) >= 0) {
      out.push_back(static_cast<char>(Hex(text[i + 1]) * 16 + Hex(text[i + 2])));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return out;
}

std::string EscapedPointer(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '~') {
      out += "~0";
    } else if (c == '/') {
      out += "~1";
    } else {
      out += c;
    }
  }
  return out;
}

// The path to `wanted` below `from`, appended to `path`.
bool FindPath(const OrderedJson& from, const OrderedJson* wanted, std::string& path) {
  if (&from == wanted) return true;
  const size_t size = path.size();
  if (from.is_object()) {
    for (const auto& [name, value] : from.items()) {
      absl::StrAppend(&path, "/", EscapedPointer(name));
      if (FindPath(value, wanted, path)) return true;
      path.resize(size);
    }
  } else if (from.is_array()) {
    for (size_t i = 0; i < from.size(); ++i) {
      absl::StrAppend(&path, "/", i);
      if (FindPath(from[i], wanted, path)) return true;
      path.resize(size);
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchemaDocument>> SchemaDocument::Parse(std::string_view text) {
  auto parsed = ParseGuardedJson(text, kLimits);
  if (!parsed.ok()) {
    return absl::Status(parsed.status().code(),
                        absl::StrCat("schema: ", std::string(parsed.status().message())));
  }
  std::unique_ptr<SchemaDocument> document(new SchemaDocument);
  document->root_ = *std::move(parsed);
  document->Index(document->root_, &document->root_);
  return document;
}

void SchemaDocument::Index(const OrderedJson& value, const OrderedJson* resource) {
  if (value.is_array()) {
    for (const OrderedJson& item : value) Index(item, resource);
    return;
  }
  if (!value.is_object()) return;
  for (const char* keyword : {"$id", "id"}) {
    const auto id = value.find(keyword);
    if (id == value.end() || !id->is_string()) continue;
    const std::string& name = id->get_ref<const std::string&>();
    if (name.starts_with("#")) {
      anchors_.try_emplace({resource, name.substr(1)}, &value);
    } else if (keyword[0] == '$' || &value == &root_) {
      resource = &value;
      resources_.try_emplace(name.substr(0, name.find('#')), &value);
    }
  }
  for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
    const auto anchor = value.find(keyword);
    if (anchor != value.end() && anchor->is_string()) {
      anchors_.try_emplace({resource, anchor->get<std::string>()}, &value);
    }
  }
  if (value.contains("$ref")) resource_of_[&value] = resource;
  for (const auto& item : value.items()) {
    if (item.key() != "enum" && item.key() != "const") Index(item.value(), resource);
  }
}

const OrderedJson* SchemaDocument::Member(const OrderedJson& object,
                                          const std::string& name) const {
  if (object.size() > 16) {
    auto [index, added] = members_.try_emplace(&object);
    if (added) {
      for (const auto& item : object.items()) index->second.emplace(item.key(), &item.value());
    }
    const auto found = index->second.find(name);
    return found == index->second.end() ? nullptr : found->second;
  }
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

const OrderedJson* SchemaDocument::FollowPointer(const OrderedJson& from,
                                                 std::string_view pointer) const {
  const OrderedJson* at = &from;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    std::string name;
    for (size_t i = 0; i < end; ++i) {
      if (pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1')) {
        name.push_back(pointer[++i] == '0' ? '~' : '/');
      } else {
        name.push_back(pointer[i]);
      }
    }
    pointer.remove_prefix(end);
    if (at->is_object()) {
      at = Member(*at, name);
      if (at == nullptr) return nullptr;
    } else if (at->is_array()) {
      size_t index = 0;
      const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
      if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size() ||
          index >= at->size()) {
        return nullptr;
      }
      at = &(*at)[index];
    } else {
      return nullptr;
    }
  }
  return at;
}

absl::StatusOr<const OrderedJson*> SchemaDocument::Resolve(const OrderedJson& schema) const {
  const OrderedJson& ref = schema.at("$ref");
  if (!ref.is_string()) return Error(schema, "$ref", "must be a string");
  const std::string& text = ref.get_ref<const std::string&>();
  const size_t hash = std::min(text.find('#'), text.size());
  const std::string document = text.substr(0, hash);
  const std::string fragment = hash < text.size() ? Unescaped(text.substr(hash + 1)) : "";
  const auto own = resource_of_.find(&schema);
  const OrderedJson* resource = own == resource_of_.end() ? &root_ : own->second;
  if (!document.empty()) {
    const auto known = resources_.find(document);
    resource = known == resources_.end() ? nullptr : known->second;
    // Relative to the root's own identifier.
    for (auto it = resources_.begin(); resource == nullptr && it != resources_.end(); ++it) {
      if (it->first.ends_with("/" + document)) resource = it->second;
    }
    if (resource == nullptr) {
      return Error(schema, "$ref",
                   absl::StrFormat("\"%s\" is outside of the schema", ClientText(text)));
    }
  }
  const OrderedJson* target = nullptr;
  if (fragment.empty() || fragment[0] == '/') {
    target = FollowPointer(*resource, fragment);
    if (target == nullptr && resource != &root_) target = FollowPointer(root_, fragment);
  } else {
    const auto anchor = anchors_.find({resource, fragment});
    if (anchor != anchors_.end()) target = anchor->second;
  }
  if (target == nullptr) {
    return Error(schema, "$ref", absl::StrFormat("\"%s\" refers to nothing", ClientText(text)));
  }
  return target;
}

std::string SchemaDocument::PathOf(const OrderedJson& value) const {
  std::string path = "#";
  FindPath(root_, &value, path);
  return path;
}

absl::Status SchemaDocument::Error(const OrderedJson& schema, std::string_view keyword,
                                   std::string_view what) const {
  std::string path = PathOf(schema);
  if (!keyword.empty()) path.append("/").append(EscapedPointer(keyword));
  return absl::InvalidArgumentError(absl::StrFormat("schema: %s: %s", ClientText(path, 200), what));
}

}  // namespace tandem::gateway::constraint
