#include "services/common/pull/model_store.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/status_macros.h"
#include "services/common/model/mmproj_name.h"
#include "services/common/pull/hub.h"
#include "services/common/pull/part_file.h"

namespace tandem::pull {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxListed = 1000;
constexpr size_t kMaxNames = 100'000;  // of files in a folder

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string RecordPath(const std::string& path) {
  const fs::path whole(path);
  return (whole.parent_path() / ("." + whole.filename().string() + ".json")).string();
}

// What was written down of the file at `path`; an empty object: nothing.
nlohmann::json ReadRecord(const std::string& path) {
  std::ifstream record(RecordPath(path), std::ios::binary);
  std::ostringstream text;
  if (!record || !(text << record.rdbuf())) return nlohmann::json::object();
  auto json = nlohmann::json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : nlohmann::json::object();
}

// The names of files in a folder, hidden ones too.
std::vector<std::string> NamesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
    if (names.size() >= kMaxNames) break;
  }
  return names;
}

// ".NAME.json" and ".NAME.part" -> "NAME"; others are empty.
std::string WithoutCompanion(const std::string& name) {
  for (const std::string_view suffix : {".json", ".part"}) {
    if (name.starts_with('.') && name.ends_with(suffix)) {
      return name.substr(1, name.size() - 1 - suffix.size());
    }
  }
  return "";
}

// What pulls brought, whole or not, of encoders that belong to `model` and to no other model beside
// it.
std::set<std::string> EncodersOf(const fs::path& model) {
  const std::vector<std::string> names = NamesIn(model.parent_path());
  std::set<std::string> encoders;
  for (const std::string& name : names) {
    const std::string encoder = WithoutCompanion(name);
    if (!IsMmprojName(encoder) || !MmprojBelongsTo(encoder, model.filename().string())) continue;
    const bool shared = std::any_of(names.begin(), names.end(), [&](const std::string& other) {
      return other != model.filename() && IsModelFile(other) && !other.starts_with('.') &&
             MmprojBelongsTo(encoder, other);
    });
    if (!shared) encoders.insert(encoder);
  }
  return encoders;
}

absl::Status RemoveWhole(const std::string& path) {
  TANDEM_RETURN_IF_ERROR(RemovePart(path).status());
  std::error_code error;
  fs::remove(path, error);
  if (error) {
    const std::string text = absl::StrFormat("removing %s: %s", path, error.message());
    if (error == std::errc::permission_denied) return absl::PermissionDeniedError(text);
    return absl::UnavailableError(text);
  }
  fs::remove(RecordPath(path), error);
  return absl::OkStatus();
}

// All below OWNER/REPO.
void ListRepository(const std::string& folder, const HubFile& repository,
                    std::vector<PulledModel>& models) {
  const fs::path root = fs::path(folder) / repository.owner / repository.repo;
  std::error_code error;
  fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    if (it.depth() >= 1) it.disable_recursion_pending();
    HubFile file = repository;
    file.file = it->path().lexically_relative(root).string();
    if (!CheckFile(file.file).ok() || !IsModelFile(file.file)) continue;
    if (auto model = ReadPulled(folder, file)) models.push_back(*std::move(model));
    if (models.size() >= kMaxListed) return;
  }
}

std::vector<PulledModel> ListFolder(const std::string& folder) {
  std::vector<PulledModel> models;
  std::error_code error;
  for (fs::directory_iterator owner(folder, error), end; !error && owner != end;
       owner.increment(error)) {
    std::error_code unreadable;
    fs::directory_iterator repo(owner->path(), unreadable);
    for (; !unreadable && repo != fs::directory_iterator(); repo.increment(unreadable)) {
      HubFile file{.owner = owner->path().filename().string(),
                   .repo = repo->path().filename().string()};
      if (CheckRepository(file.owner, file.repo).ok()) ListRepository(folder, file, models);
      if (models.size() >= kMaxListed) return models;
    }
  }
  return models;
}

}  // namespace

std::string DefaultModelsFolder() {
  if (std::string folder = Environment("TANDEM_MODELS"); !folder.empty()) return folder;
  if (const std::string data = Environment("XDG_DATA_HOME"); !data.empty()) {
    return data + "/tandem/models";
  }
  if (const std::string home = Environment("HOME"); !home.empty()) {
    return home + "/.local/share/tandem/models";
  }
  return kSystemModelsFolder;
}

std::vector<std::string> ModelsFolders(const std::string& folder) {
  std::vector<std::string> folders = {folder.empty() ? DefaultModelsFolder() : folder};
  if (folders[0] != kSystemModelsFolder) folders.emplace_back(kSystemModelsFolder);
  return folders;
}

std::string PathInStore(const std::string& folder, const HubFile& file) {
  return (fs::path(folder) / file.owner / file.repo / file.file).string();
}

std::optional<PulledEncoder> EncoderBeside(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  const auto name = ChooseMmproj(FileNameOf(path), NamesIn(folder));
  if (!name.has_value()) return std::nullopt;
  PulledEncoder encoder{.path = (folder / *name).string()};
  std::error_code error;
  encoder.bytes = fs::file_size(encoder.path, error);
  if (error) return std::nullopt;
  const nlohmann::json record = ReadRecord(encoder.path);
  const auto sha256 = record.find("sha256");
  if (sha256 != record.end() && sha256->is_string()) encoder.sha256 = sha256->get<std::string>();
  return encoder;
}

std::optional<PulledModel> ReadPulled(const std::string& folder, const HubFile& file) {
  PulledModel model{.folder = folder, .hub = file};
  model.path = PathInStore(folder, file);
  std::error_code error;
  if (!fs::is_regular_file(model.path, error)) return std::nullopt;
  model.bytes = fs::file_size(model.path, error);
  model.name = file.Name();
  const nlohmann::json json = ReadRecord(model.path);
  const auto take = [&json](const char* name, std::string& value) {
    const auto found = json.find(name);
    if (found != json.end() && found->is_string()) value = found->get<std::string>();
  };
  take("name", model.name);
  take("revision", model.hub.revision);
  take("commit", model.commit);
  take("sha256", model.sha256);
  model.encoder = EncoderBeside(model.path);
  return model;
}

std::vector<PulledModel> ListPulled(const std::vector<std::string>& folders) {
  std::map<std::string, PulledModel> found;
  for (const std::string& folder : folders) {
    for (PulledModel& model : ListFolder(folder)) found.try_emplace(model.name, std::move(model));
  }
  std::vector<PulledModel> models;
  for (auto& [name, model] : found) models.push_back(std::move(model));
  return models;
}

absl::StatusOr<PulledModel> FindPulled(const std::string& text, const ModelTable& table,
                                       const std::vector<std::string>& folders) {
  TANDEM_ASSIGN_OR_RETURN(const ModelName name, ParseModelName(text));
  HubFile wanted = name.hub;
  absl::Status unknown;
  if (!name.from_hub) {
    const auto entry = table.Find(name.text);
    if (entry.ok()) {
      wanted = entry->hub;
    } else {
      unknown = entry.status();
    }
  }
  for (const std::string& folder : folders) {
    if (unknown.ok() && IsModelFile(wanted.file)) {
      if (auto model = ReadPulled(folder, wanted)) return *std::move(model);
    }
    // As an earlier table had it, or the file that was chosen then.
    std::vector<std::string> files;
    std::vector<PulledModel> same;
    for (PulledModel& model : ListFolder(folder)) {
      if (model.name == name.text) return std::move(model);
      if (!name.from_hub || model.hub.repository() != wanted.repository()) continue;
      files.push_back(model.hub.file);
      same.push_back(std::move(model));
    }
    if (same.empty() || IsModelFile(wanted.file)) continue;
    const auto chosen = ChooseFile(files, wanted.file, wanted.repository());
    for (PulledModel& model : same) {
      if (chosen.ok() && model.hub.file == *chosen) return std::move(model);
    }
  }
  if (!unknown.ok()) return unknown;
  return absl::NotFoundError(absl::StrFormat(
      "model '%s' is not on this machine (looked in %s): get it with `tandem pull %s`", name.text,
      absl::StrJoin(folders, " and "), name.text));
}

absl::StatusOr<std::string> PathOrPulled(const std::string& text) {
  std::error_code ignored;
  if (fs::exists(text, ignored)) return text;
  TANDEM_ASSIGN_OR_RETURN(const ModelTable table, ModelTable::FromEnvironment());
  if (!LooksLikeModelName(text) && !table.Knows(text)) return text;
  TANDEM_ASSIGN_OR_RETURN(const PulledModel model, FindPulled(text, table, ModelsFolders()));
  return model.path;
}

absl::Status RemovePulled(const PulledModel& model) {
  const std::set<std::string> encoders = EncodersOf(model.path);
  TANDEM_RETURN_IF_ERROR(RemoveWhole(model.path));
  for (const std::string& encoder : encoders) {
    TANDEM_RETURN_IF_ERROR(RemoveWhole((fs::path(model.path).parent_path() / encoder).string()));
  }
  std::error_code error;
  // Empty folders alone are removed, up to the store itself.
  for (fs::path at = fs::path(model.path).parent_path();
       at != fs::path(model.folder) && at.has_relative_path(); at = at.parent_path()) {
    if (!fs::remove(at, error)) break;
  }
  return absl::OkStatus();
}

absl::Status RecordPulled(const PulledModel& model) {
  return WriteWhole(RecordPath(model.path),
                    nlohmann::ordered_json{{"name", model.name},
                                           {"repository", model.hub.repository()},
                                           {"revision", model.hub.revision},
                                           {"commit", model.commit},
                                           {"sha256", model.sha256},
                                           {"bytes", model.bytes}}
                            .dump(2) +
                        "\n");
}

}  // namespace tandem::pull
