#include "services/common/pull/model_table.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::pull {
namespace {

using Json = nlohmann::json;

std::string Text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

bool IsSha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

absl::StatusOr<TableEntry> ParseEntry(const Json& json) {
  TableEntry entry;
  if (!json.is_object()) return absl::InvalidArgumentError("is no object");
  const std::string repository = Text(json, "repo");
  const size_t slash = repository.find('/');
  if (slash == repository.npos) {
    return absl::InvalidArgumentError(
        absl::StrFormat("\"repo\": '%s' is not OWNER/REPO", repository));
  }
  entry.hub.owner = repository.substr(0, slash);
  entry.hub.repo = repository.substr(slash + 1);
  TANDEM_RETURN_IF_ERROR(CheckRepository(entry.hub.owner, entry.hub.repo));
  entry.hub.file = Text(json, "file");
  TANDEM_RETURN_IF_ERROR(CheckFile(entry.hub.file));
  if (const std::string revision = Text(json, "revision"); !revision.empty()) {
    TANDEM_RETURN_IF_ERROR(ParseModelName("hf:a/b@" + revision).status());
    entry.hub.revision = revision;
  }
  entry.sha256 = Text(json, "sha256");
  if (!entry.sha256.empty() && !IsSha256(entry.sha256)) {
    return absl::InvalidArgumentError("\"sha256\" is not 64 small hexadecimal digits");
  }
  if (const auto size = json.find("gigabytes"); size != json.end() && size->is_number()) {
    entry.gigabytes = size->get<double>();
  }
  if (const auto gated = json.find("gated"); gated != json.end() && gated->is_boolean()) {
    entry.gated = gated->get<bool>();
  }
  if (const auto sees = json.find("pictures"); sees != json.end() && sees->is_boolean()) {
    entry.pictures = sees->get<bool>();
  }
  const auto names = json.find("names");
  if (names == json.end() || !names->is_array() || names->empty()) {
    return absl::InvalidArgumentError("\"names\" is no array of names");
  }
  for (const Json& name : *names) {
    if (!name.is_string()) return absl::InvalidArgumentError("\"names\" holds more than strings");
    TANDEM_ASSIGN_OR_RETURN(const ModelName parsed, ParseModelName(name.get<std::string>()));
    if (parsed.from_hub) return absl::InvalidArgumentError("\"names\" may not begin with hf:");
    entry.names.push_back(parsed.text);
  }
  return entry;
}

}  // namespace

absl::StatusOr<ModelTable> ModelTable::Parse(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto models = json.is_object() ? json.find("models") : json.end();
  if (!json.is_object() || models == json.end() || !models->is_array()) {
    return absl::InvalidArgumentError("is no JSON object with an array \"models\"");
  }
  ModelTable table;
  std::set<std::string> known;
  for (const Json& one : *models) {
    auto entry = ParseEntry(one);
    if (!entry.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat("entry %d: %s", table.entries_.size(),
                                                        std::string(entry.status().message())));
    }
    for (const std::string& name : entry->names) {
      if (!known.insert(name).second) {
        return absl::InvalidArgumentError(absl::StrFormat("'%s' is there twice", name));
      }
    }
    table.entries_.push_back(*std::move(entry));
  }
  return table;
}

ModelTable ModelTable::BuiltIn() {
  auto table = Parse(EmbeddedModelTable());
  TANDEM_CHECK(table.ok());
  return *std::move(table);
}

absl::StatusOr<ModelTable> ModelTable::FromFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrFormat("model table %s cannot be read", path));
  }
  auto table = Parse(text);
  if (!table.ok()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model table %s: %s", path, std::string(table.status().message())));
  }
  return table;
}

absl::StatusOr<ModelTable> ModelTable::FromEnvironment() {
  const char* path = std::getenv("TANDEM_MODEL_TABLE");
  if (path != nullptr && *path != '\0') return FromFile(path);
  return BuiltIn();
}

bool ModelTable::Knows(std::string_view text) const {
  const auto name = ParseModelName(text);
  return name.ok() && !name->from_hub && Find(name->text).ok();
}

absl::StatusOr<TableEntry> ModelTable::Find(const std::string& name) const {
  for (const TableEntry& entry : entries_) {
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end()) return entry;
  }
  const std::string family = name.substr(0, name.find(':')) + ":";
  std::vector<std::string> alike;
  for (const TableEntry& entry : entries_) {
    if (entry.names.front().starts_with(family)) alike.push_back(entry.names.front());
  }
  return absl::NotFoundError(absl::StrFormat(
      "no model '%s' is known%s; `tandem pull --list` names those that are, and any GGUF file is "
      "hf:OWNER/REPO:FILE",
      name, alike.empty() ? "" : "; there are " + absl::StrJoin(alike, ", ")));
}

}  // namespace tandem::pull
