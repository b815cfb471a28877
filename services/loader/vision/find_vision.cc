// Which mmproj file belongs to a GGUF model.
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "services/common/model/mmproj_name.h"
#include "services/loader/formats/gguf.h"
#include "services/loader/formats/json.h"
#include "services/loader/formats/model_folder.h"
#include "services/loader/vision/vision_config_reader.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxFolderConfigBytes = 16 << 20;
constexpr size_t kMaxCandidates = 1024;

bool HasVision(const std::string& folder_path) {
  const absl::StatusOr<ModelFolder> folder = ModelFolder::Open(folder_path);
  if (!folder.ok()) return false;
  const auto text = folder->ReadRequired("config.json", kMaxFolderConfigBytes);
  if (!text.ok()) return false;
  const auto config = ParseJson(*text);
  return config.ok() && HasVisionConfig(*config);
}

// mmproj files by name in the folder.
std::vector<std::string> Candidates(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; it != end && !error;
       it.increment(error)) {
    std::string name = it->path().filename().string();
    if (IsMmprojName(name)) names.push_back(std::move(name));
    if (names.size() >= kMaxCandidates) break;
  }
  return names;
}

}  // namespace

bool IsVisionFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const absl::StatusOr<FileSource> file = FileSource::Open(path);
  if (!file.ok()) return false;
  const absl::StatusOr<GgufHeader> header = ParseGguf(*file);
  return header.ok() && IsVisionGguf(*header);
}

std::optional<std::string> FindVision(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return HasVision(path) ? std::optional(path) : std::nullopt;
  }
  const std::filesystem::path file(path);
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
  const auto name = ChooseMmproj(file.filename().string(),
                                 Candidates(file.parent_path().empty() ? "." : file.parent_path()));
  if (!name.has_value()) return std::nullopt;
  return (file.parent_path() / *name).string();
}

}  // namespace tandem::loader
