// Which mmproj file belongs to a GGUF model.
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "services/loader/formats/gguf.h"
#include "services/loader/formats/json.h"
#include "services/loader/formats/model_folder.h"
#include "services/loader/vision/vision_config_reader.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr std::string_view kMark = "mmproj";
constexpr uint64_t kMaxFolderConfigBytes = 16 << 20;
constexpr size_t kMaxCandidates = 1024;
// Words of file names that say nothing about the model.
constexpr std::array<std::string_view, 6> kOtherWords = {"mmproj", "model", "f16",
                                                         "bf16",   "f32",   "fp16"};

// The words of a file's name without its suffix, in lower case: "demo2", "q8", "0".
std::set<std::string> WordsOf(std::string name) {
  name = absl::AsciiStrToLower(name);
  name.resize(name.size() - std::min(name.size(), kSuffix.size()));
  std::set<std::string> words;
  std::string word;
  for (const char c : name + "-") {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      word += c;
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

// Words that tell the model; "q8" and "0" of "Q8_0" are a number format.
std::set<std::string> ModelWords(const std::string& name) {
  std::set<std::string> words = WordsOf(name);
  for (const std::string_view other : kOtherWords) words.erase(std::string(other));
  if (words.contains("q8")) {
    words.erase("q8");
    words.erase("0");
  }
  return words;
}

bool HasVision(const std::string& folder_path) {
  const absl::StatusOr<ModelFolder> folder = ModelFolder::Open(folder_path);
  if (!folder.ok()) return false;
  const auto text = folder->ReadRequired("config.json", kMaxFolderConfigBytes);
  if (!text.ok()) return false;
  const auto config = ParseJson(*text);
  return config.ok() && HasVisionConfig(*config);
}

// mmproj files by name in the folder, in alphabetical order.
std::vector<std::string> Candidates(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; it != end && !error;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::string lower = absl::AsciiStrToLower(name);
    if (lower.ends_with(kSuffix) && lower.find(kMark) != std::string::npos) names.push_back(name);
    if (names.size() >= kMaxCandidates) break;
  }
  std::sort(names.begin(), names.end());
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
  const std::set<std::string> model = WordsOf(file.filename().string());
  std::optional<std::string> best;
  size_t most_words = 0;
  for (const std::string& name :
       Candidates(file.parent_path().empty() ? "." : file.parent_path())) {
    const std::set<std::string> words = ModelWords(name);
    if (!std::includes(model.begin(), model.end(), words.begin(), words.end())) continue;
    if (best.has_value() && words.size() <= most_words) continue;
    best = (file.parent_path() / name).string();
    most_words = words.size();
  }
  return best;
}

}  // namespace tandem::loader
