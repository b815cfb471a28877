// A safetensors release: configuration, tokenizer and one or more files of tensors.
#include <utility>

#include "absl/strings/str_format.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/hf_config.h"
#include "services/loader/formats/hf_tokenizer.h"
#include "services/loader/formats/json.h"
#include "services/loader/formats/model_folder.h"
#include "services/loader/formats/opened_model.h"
#include "services/loader/formats/printable.h"
#include "services/loader/formats/safetensors_files.h"
#include "services/loader/formats/vocabulary_builder.h"

namespace tandem::loader {
namespace {

constexpr uint64_t kMaxConfigBytes = 16 << 20;

class ReleaseReader {
 public:
  explicit ReleaseReader(ModelFolder folder) : folder_(std::move(folder)) {}

  absl::StatusOr<OpenedModel> Read() {
    model_.format = "safetensors";
    TANDEM_RETURN_IF_ERROR(ReadConfigs());
    TANDEM_RETURN_IF_ERROR(ReadTokenizer());
    TANDEM_ASSIGN_OR_RETURN(SafetensorsFiles files, OpenSafetensorsFiles(folder_, hash_));
    model_.files = std::move(files.files);
    model_.file_names = std::move(files.file_names);
    for (auto& entry : files.metadata) model_.metadata.push_back(std::move(entry));
    absl::StatusOr<DecoderTensors> decoder =
        SelectDecoderTensors(model_.config, files.tensors, NameStyle::kSafetensors, release_.tied);
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
      model_.metadata.emplace_back(Printable(key, kMaxPrintedMetadata),
                                   PrintJson(value, kMaxPrintedMetadata));
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
    stops.AddGemmas(model_.vocabulary);
    model_.config.stop_token_ids = stops.ids();
    return absl::OkStatus();
  }

  ModelFolder folder_;
  OpenedModel model_;
  ReleaseConfig release_;
  ContentHash hash_;
};

}  // namespace

absl::StatusOr<OpenedModel> OpenSafetensors(const std::string& folder) {
  TANDEM_ASSIGN_OR_RETURN(ModelFolder opened, ModelFolder::Open(folder));
  return ReleaseReader(std::move(opened)).Read();
}

}  // namespace tandem::loader
