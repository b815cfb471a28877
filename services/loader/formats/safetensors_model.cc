// A safetensors release: configuration, tokenizer and one or more files of tensors.
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/hf_config.h"
#include "services/loader/formats/hf_tokenizer.h"
#include "services/loader/formats/json.h"
#include "services/loader/formats/model_folder.h"
#include "services/loader/formats/opened_model.h"
#include "services/loader/formats/printable.h"
#include "services/loader/formats/safetensors.h"
#include "services/loader/formats/vocabulary_builder.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxConfigBytes = 16 << 20;
constexpr uint64_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxShards = 512;
constexpr size_t kMaxPrinted = 100;
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

class ReleaseReader {
 public:
  explicit ReleaseReader(ModelFolder folder) : folder_(std::move(folder)) {}

  absl::StatusOr<OpenedModel> Read() {
    model_.format = "safetensors";
    TANDEM_RETURN_IF_ERROR(ReadConfigs());
    TANDEM_RETURN_IF_ERROR(ReadTokenizer());
    TANDEM_RETURN_IF_ERROR(ReadShards());
    absl::StatusOr<DecoderTensors> decoder =
        SelectDecoderTensors(model_.config, file_tensors_, NameStyle::kSafetensors, release_.tied);
    if (!decoder.ok()) return InFile(folder_.path(), decoder.status());
    model_.tensors = std::move(decoder->tensors);
    model_.skipped = std::move(decoder->skipped);
    model_.content_id = hash_.Finish();
    return std::move(model_);
  }

 private:
  absl::StatusOr<nlohmann::json> ReadJson(std::string_view name, bool required) {
    TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                            folder_.ReadOptional(name, kMaxConfigBytes));
    if (!text.has_value()) {
      if (!required) return nlohmann::json();
      return absl::NotFoundError(absl::StrFormat("%s is missing", folder_.PathOf(name)));
    }
    hash_.Add(name);
    hash_.Add(*text);
    absl::StatusOr<nlohmann::json> document = ParseJson(*text);
    if (!document.ok()) return InFile(folder_.PathOf(name), document.status());
    return document;
  }

  absl::Status ReadConfigs() {
    TANDEM_ASSIGN_OR_RETURN(const nlohmann::json config, ReadJson("config.json", true));
    TANDEM_ASSIGN_OR_RETURN(const nlohmann::json generation,
                            ReadJson("generation_config.json", false));
    absl::StatusOr<ReleaseConfig> release = ReadReleaseConfig(config, generation);
    if (!release.ok()) return InFile(folder_.PathOf("config.json"), release.status());
    release_ = *std::move(release);
    model_.config = release_.model;
    model_.sampling_defaults = release_.sampling;
    for (const auto& [key, value] : config.items()) {
      model_.metadata.emplace_back(Printable(key, kMaxPrinted), PrintJson(value, kMaxPrinted));
    }
    return absl::OkStatus();
  }

  absl::Status ReadTokenizer() {
    absl::StatusOr<HfTokenizer> tokenizer =
        ReadHfTokenizer(folder_, model_.config.vocab_size, hash_);
    if (!tokenizer.ok()) return tokenizer.status();
    model_.vocabulary = std::move(tokenizer->vocabulary);
    model_.chat_template = std::move(tokenizer->chat_template);
    StopTokens stops;
    for (const int32_t id : model_.config.stop_token_ids) stops.Add(id);
    stops.AddPiece(model_.vocabulary, "<end_of_turn>");
    model_.config.stop_token_ids = stops.ids();
    return absl::OkStatus();
  }

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
      tensor.file = static_cast<uint32_t>(model_.files.size());
      file_tensors_.push_back(std::move(tensor));
    }
    for (auto& [key, value] : header->metadata) {
      model_.metadata.emplace_back(
          absl::StrFormat("%s: %s", std::string(name), Printable(key, kMaxPrinted)),
          Printable(value, kMaxPrinted));
    }
    model_.file_names.push_back(folder_.PathOf(name));
    model_.files.push_back(std::move(file));
    return absl::OkStatus();
  }

  // The index and the files must tell the same story.
  absl::Status CheckIndex(const WeightMap& weight_map) const {
    std::set<std::string> seen;
    for (const FileTensor& tensor : file_tensors_) {
      const std::string& file = model_.file_names[tensor.file];
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

  ModelFolder folder_;
  OpenedModel model_;
  ReleaseConfig release_;
  std::vector<FileTensor> file_tensors_;
  ContentHash hash_;
};

}  // namespace

absl::StatusOr<OpenedModel> OpenSafetensors(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(ModelFolder opened, ModelFolder::Open(folder));
  return ReleaseReader(std::move(opened)).Read();
}

}  // namespace tandem::loader
