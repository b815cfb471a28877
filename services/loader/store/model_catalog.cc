#include "services/loader/store/model_catalog.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/common/base/status_macros.h"
#include "services/loader/synthetic/synthetic_spec.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxComponents = 4;
constexpr size_t kMaxListed = 1000;
constexpr size_t kMaxVisited = 100'000;

bool IsInside(const fs::path& path, const fs::path& root) {
  const auto [root_end, ignored] =
      std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return root_end == root.end();
}

bool IsInsideAny(const fs::path& path, const std::vector<std::string>& roots) {
  return std::any_of(roots.begin(), roots.end(),
                     [&path](const std::string& root) { return IsInside(path, root); });
}

// What to open for a file under a root that leads to `canonical`: that, or the link itself where its
// name alone tells that it is a GGUF file.  In the hub's cache FILE.gguf is a link to blobs/HASH, and
// the vision encoder lies beside the link.
fs::path PathToOpen(const fs::path& file, const fs::path& canonical,
                    const std::vector<std::string>& roots) {
  std::error_code error;
  if (file.extension() != ".gguf" || canonical.extension() == ".gguf" ||
      !fs::is_regular_file(canonical, error)) {
    return canonical;
  }
  const fs::path folder = fs::canonical(file.parent_path(), error);
  return !error && IsInsideAny(folder, roots) ? folder / file.filename() : canonical;
}

uint64_t SizeOf(const fs::path& path) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  return error ? 0 : bytes;
}

// "demo.Q8_0" of "demo.Q8_0.gguf": both name the model.
std::string WithoutSuffix(const std::string& name) {
  constexpr std::string_view kSuffix = ".gguf";
  return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
}

// Whether the reader of a safetensors folder may read the file.
bool IsPartOfFolder(const fs::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".safetensors" || extension == ".json" || extension == ".model" ||
         extension == ".jinja";
}

// What a path looks like from outside; nothing if it is no model.
std::optional<ModelFile> Classify(const std::string& name, const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    if (path.extension() != ".gguf") return std::nullopt;
    return ModelFile{name, path.string(), "gguf", SizeOf(path)};
  }
  if (!fs::is_directory(path, error) || !fs::exists(path / "config.json", error)) {
    return std::nullopt;
  }
  uint64_t bytes = 0;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") bytes += SizeOf(it->path());
  }
  if (bytes == 0) return std::nullopt;
  return ModelFile{name, path.string(), "safetensors", bytes};
}

}  // namespace

absl::StatusOr<ModelCatalog> ModelCatalog::Create(const std::vector<std::string>& roots,
                                                  std::map<std::string, std::string> vision) {
  ModelCatalog catalog;
  for (auto& [name, path] : vision) catalog.vision_[WithoutSuffix(name)] = std::move(path);
  for (const std::string& root : roots) {
    std::error_code error;
    const fs::path canonical = fs::canonical(root, error);
    if (error) {
      return absl::NotFoundError(absl::StrFormat("model root '%s': %s", root, error.message()));
    }
    const fs::directory_iterator readable(canonical, error);
    if (error) {
      return absl::FailedPreconditionError(
          absl::StrFormat("model root '%s' cannot be listed: %s", root, error.message()));
    }
    catalog.roots_.push_back(canonical.string());
  }
  if (catalog.roots_.empty()) return absl::InvalidArgumentError("no model root given");
  return catalog;
}

absl::Status ModelCatalog::CheckName(std::string_view name) {
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model name of %d bytes %s; use the name of a "
                        "file or folder under a model root",
                        name.size(), why));
  };
  if (name.empty() || name.size() > 1024) return refuse("is empty or longer than 1024");
  if (name.find('\0') != name.npos || name.find('\\') != name.npos) {
    return refuse("holds a NUL or a backslash");
  }
  const std::vector<std::string> parts =
      absl::StrSplit(absl::string_view(name.data(), name.size()), '/');
  if (parts.size() > kMaxComponents) return refuse("has more than 4 components");
  for (const std::string& part : parts) {
    if (part.empty() || part == "." || part == "..") {
      return refuse("is absolute or has an empty, '.' or '..' component");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ModelFile> ModelCatalog::Resolve(std::string_view name) const {
  TANDEM_RETURN_IF_ERROR(CheckName(name));
  if (IsSyntheticName(name)) {
    return ModelFile{std::string(name), std::string(name), "synthetic", 0};
  }
  for (const std::string& root : roots_) {
    for (const char* suffix : {"", ".gguf"}) {
      const std::string candidate = std::string(name) + suffix;
      std::error_code error;
      const fs::path link = fs::path(root) / candidate;
      const fs::path path = fs::canonical(link, error);
      if (error) continue;
      if (!IsInsideAny(path, roots_)) {
        return absl::PermissionDeniedError(absl::StrFormat(
            "model '%s' is a link out of its root '%s', and into no other", candidate, root));
      }
      auto file = Classify(candidate, PathToOpen(link, path, roots_));
      if (!file.has_value()) continue;
      const auto vision = vision_.find(WithoutSuffix(candidate));
      if (vision != vision_.end()) file->vision = vision->second;
      return *std::move(file);
    }
  }
  return absl::NotFoundError(absl::StrFormat("no GGUF file or safetensors folder '%s' under %s",
                                             std::string(name), absl::StrJoin(roots_, ", ")));
}

absl::StatusOr<std::string> ModelCatalog::FileStamp(const ModelFile& file) {
  if (file.format == "synthetic") return std::string();
  std::error_code error;
  std::vector<fs::path> paths = {file.path};
  if (file.format == "safetensors") {
    paths.clear();
    for (fs::directory_iterator it(file.path, error), end; !error && it != end;
         it.increment(error)) {
      if (IsPartOfFolder(it->path())) paths.push_back(it->path());
    }
    std::sort(paths.begin(), paths.end());
  }
  if (file.vision.has_value()) {
    if (!file.vision->empty()) paths.emplace_back(*file.vision);
  } else if (file.format == "gguf") {
    if (const std::optional<std::string> found = FindVision(file.path)) paths.emplace_back(*found);
  }
  std::string stamp;
  for (const fs::path& path : paths) {
    struct stat info {};
    if (error || ::stat(path.c_str(), &info) != 0) {
      return absl::NotFoundError(absl::StrFormat("model file '%s': %s", path.string(),
                                                 error ? error.message() : std::strerror(errno)));
    }
    absl::StrAppendFormat(&stamp, "%s %d %d.%09d\n", path.filename().string(), info.st_size,
                          info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrFormat("model folder '%s': %s", file.path, error.message()));
  }
  return stamp;
}

std::vector<ModelFile> ModelCatalog::List() const {
  std::map<std::string, ModelFile> found;
  size_t visited = 0;
  for (const std::string& root : roots_) {
    std::error_code error;
    fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, error);
    for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
      if (++visited > kMaxVisited || found.size() >= kMaxListed) break;
      const std::string name = fs::path(it->path()).lexically_relative(root).string();
      if (it.depth() + 1 >= static_cast<int>(kMaxComponents)) it.disable_recursion_pending();
      std::error_code unreadable;
      const fs::path path = fs::canonical(it->path(), unreadable);
      if (unreadable || !IsInsideAny(path, roots_) || !CheckName(name).ok()) continue;
      if (auto file = Classify(name, PathToOpen(it->path(), path, roots_))) {
        it.disable_recursion_pending();
        found.try_emplace(name, *std::move(file));
      }
    }
  }
  std::vector<ModelFile> models;
  models.reserve(found.size());
  for (auto& [name, file] : found) models.push_back(std::move(file));
  return models;
}

}  // namespace tandem::loader
