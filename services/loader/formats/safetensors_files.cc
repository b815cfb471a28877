#include "services/loader/formats/safetensors_files.h"

#include <map>
#include <set>
#include <string_view>

#include "absl/strings/str_format.h"
#include "services/loader/formats/json.h"
#include "services/loader/formats/printable.h"
#include "services/loader/formats/safetensors.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxShards = 512;
constexpr size_t kMaxMetadataPrinted = 100;
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

// Tensor name -> file name of the index; empty for a release of one file.
using WeightMap = std::map<std::string, std::string>;

absl::StatusOr<WeightMap> ParseIndex(std::string_view text) {
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJson(text));
  TANDEM_ASSIGN_OR_RETURN(const nlohmann::json* entries, JsonObject(index, "weight_map"));
  if (entries == nullptr || entries->empty()) {
    return absl::InvalidArgumentError("weight_map is missing or empty");
  }
  WeightMap weight_map;
  for (const auto& [tensor, file] : entries->items()) {
    if (!file.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("weight_map: the file of %s is no string", tensor.substr(0, 120)));
    }
    std::string name = file.get<std::string>();
    const absl::Status plain = CheckFileName(name);
    if (!plain.ok()) {
      return InFile(absl::StrFormat("weight_map: the file of %s", tensor.substr(0, 120)), plain);
    }
    weight_map.emplace(tensor, std::move(name));
  }
  return weight_map;
}

class FilesReader {
 public:
  FilesReader(const ModelFolder& folder, ContentHash& hash) : folder_(folder), hash_(hash) {}

  absl::StatusOr<SafetensorsFiles> Read() {
    TANDEM_RETURN_IF_ERROR(ReadShards());
    return std::move(files_);
  }

 private:
  absl::Status ReadShards() {
    absl::StatusOr<FileSource> single = folder_.OpenFile(kSingleName);
    if (single.ok()) return ReadShard(kSingleName, *std::move(single));
    if (!absl::IsNotFound(single.status())) return single.status();
    TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                            folder_.ReadOptional(kIndexName, kMaxIndexBytes));
    if (!text.has_value()) {
      return absl::NotFoundError(absl::StrFormat("%s has neither %s nor %s", folder_.path(),
                                                 std::string(kSingleName),
                                                 std::string(kIndexName)));
    }
    const absl::StatusOr<WeightMap> weight_map = ParseIndex(*text);
    if (!weight_map.ok()) return InFile(folder_.PathOf(kIndexName), weight_map.status());
    std::set<std::string> names;
    for (const auto& [tensor, file] : *weight_map) names.insert(file);
    if (names.size() > kMaxShards) {
      return InFile(folder_.PathOf(kIndexName),
                    absl::InvalidArgumentError(absl::StrFormat("%d files, at most %d are accepted",
                                                               names.size(), kMaxShards)));
    }
    for (const std::string& name : names) {
      TANDEM_ASSIGN_OR_RETURN(FileSource file, folder_.OpenFile(name));
      TANDEM_RETURN_IF_ERROR(ReadShard(name, std::move(file)));
    }
    return CheckIndex(*weight_map);
  }

  absl::Status ReadShard(std::string_view name, FileSource file) {
    absl::StatusOr<SafetensorsHeader> header = ParseSafetensors(file);
    if (!header.ok()) return InFile(folder_.PathOf(name), header.status());
    const absl::Status hashed = hash_.AddFile(file, header->data_offset);
    if (!hashed.ok()) return InFile(folder_.PathOf(name), hashed);
    for (FileTensor& tensor : header->tensors) {
      tensor.file = static_cast<uint32_t>(files_.files.size());
      files_.tensors.push_back(std::move(tensor));
    }
    for (auto& [key, value] : header->metadata) {
      files_.metadata.emplace_back(
          absl::StrFormat("%s: %s", std::string(name), Printable(key, kMaxMetadataPrinted)),
          Printable(value, kMaxMetadataPrinted));
    }
    files_.file_names.push_back(folder_.PathOf(name));
    files_.files.push_back(std::move(file));
    return absl::OkStatus();
  }

  // The index and the files must tell the same story.
  absl::Status CheckIndex(const WeightMap& weight_map) const {
    std::set<std::string> seen;
    for (const FileTensor& tensor : files_.tensors) {
      const std::string& file = files_.file_names[tensor.file];
      if (!seen.insert(tensor.name).second) {
        return InFile(file, FormatError(tensor.file_offset,
                                        absl::StrFormat("tensor %s is in another file as well",
                                                        tensor.name)));
      }
      const auto entry = weight_map.find(tensor.name);
      if (entry == weight_map.end() || folder_.PathOf(entry->second) != file) {
        return InFile(file, FormatError(tensor.file_offset,
                                        absl::StrFormat("tensor %s is not where %s has it",
                                                        tensor.name, std::string(kIndexName))));
      }
    }
    for (const auto& [tensor, file] : weight_map) {
      if (!seen.contains(tensor)) {
        return InFile(folder_.PathOf(file), absl::InvalidArgumentError(absl::StrFormat(
                                                "tensor %s, which %s places here, is missing",
                                                tensor, std::string(kIndexName))));
      }
    }
    return absl::OkStatus();
  }

  const ModelFolder& folder_;
  ContentHash& hash_;
  SafetensorsFiles files_;
};

}  // namespace

absl::StatusOr<SafetensorsFiles> OpenSafetensorsFiles(const ModelFolder& folder,
                                                      ContentHash& hash) {
  return FilesReader(folder, hash).Read();
}

}  // namespace tandem::loader
