#include "services/loader/formats/hf_tokenizer.h"

#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"
#include "services/loader/formats/json.h"
#include "services/loader/formats/tokenizer_model.h"

namespace tandem::loader {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxModelBytes = 64 << 20;
constexpr uint64_t kMaxJsonBytes = 16 << 20;
constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

absl::StatusOr<json> ReadJson(const ModelFolder& folder, std::string_view name, ContentHash& hash) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                          folder.ReadOptional(name, kMaxJsonBytes));
  if (!text.has_value()) return json();
  hash.Add(name);
  hash.Add(*text);
  absl::StatusOr<json> document = ParseJson(*text);
  if (!document.ok()) return InFile(folder.PathOf(name), document.status());
  return document;
}

// added_tokens.json: {"<end_of_turn>": 106}.
absl::Status AddTokens(const json& tokens, VocabularyBuilder& vocabulary) {
  for (const auto& [piece, value] : tokens.items()) {
    TANDEM_ASSIGN_OR_RETURN(const auto id, JsonInteger(tokens, piece, 0, kMaxId));
    if (id.has_value()) TANDEM_RETURN_IF_ERROR(vocabulary.Add(*id, piece, /*special=*/true));
  }
  return absl::OkStatus();
}

// tokenizer_config.json: {"106": {"content": "<end_of_turn>", "special": true, ...}}.
absl::Status AddDecoderTokens(const json& config, VocabularyBuilder& vocabulary) {
  TANDEM_ASSIGN_OR_RETURN(const json* tokens, JsonObject(config, "added_tokens_decoder"));
  if (tokens == nullptr) return absl::OkStatus();
  for (const auto& [key, token] : tokens->items()) {
    int32_t id = 0;
    TANDEM_ASSIGN_OR_RETURN(const auto content, JsonString(token, "content"));
    TANDEM_ASSIGN_OR_RETURN(const auto special, JsonBool(token, "special"));
    if (!absl::SimpleAtoi(key, &id) || !content.has_value()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "added_tokens_decoder: \"%s\" is no id or has no content", key.substr(0, 40)));
    }
    TANDEM_RETURN_IF_ERROR(vocabulary.Add(id, *content, special.value_or(false)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TemplateOf(const json& object) {
  const json* value = JsonMember(object, "chat_template");
  if (value == nullptr) return std::string();
  if (!value->is_array()) {
    TANDEM_ASSIGN_OR_RETURN(auto text, JsonString(object, "chat_template"));
    return text.value_or("");
  }
  for (const json& entry : *value) {
    TANDEM_ASSIGN_OR_RETURN(const auto name, JsonString(entry, "name"));
    TANDEM_ASSIGN_OR_RETURN(auto text, JsonString(entry, "template"));
    if (name.value_or("") == "default" && text.has_value()) return *std::move(text);
  }
  return std::string();
}

absl::StatusOr<std::string> ReadChatTemplate(const ModelFolder& folder, const json& config,
                                             ContentHash& hash) {
  TANDEM_ASSIGN_OR_RETURN(std::optional<std::string> jinja,
                          folder.ReadOptional("chat_template.jinja", kMaxJsonBytes));
  if (jinja.has_value()) {
    hash.Add(*jinja);
    if (const auto bad = FindInvalidUtf8(*jinja)) {
      return InFile(folder.PathOf("chat_template.jinja"), FormatError(*bad, "not UTF-8"));
    }
    return *std::move(jinja);
  }
  constexpr std::string_view kName = "chat_template.json";
  TANDEM_ASSIGN_OR_RETURN(const json document, ReadJson(folder, kName, hash));
  absl::StatusOr<std::string> text = TemplateOf(document);
  if (!text.ok()) return InFile(folder.PathOf(kName), text.status());
  if (!text->empty()) return text;
  text = TemplateOf(config);
  return text.ok() ? text : InFile(folder.PathOf("tokenizer_config.json"), text.status());
}

}  // namespace

absl::StatusOr<HfTokenizer> ReadHfTokenizer(const ModelFolder& folder, uint32_t vocab_size,
                                            ContentHash& hash) {
  constexpr std::string_view kModel = "tokenizer.model";
  constexpr std::string_view kConfig = "tokenizer_config.json";
  constexpr std::string_view kAdded = "added_tokens.json";
  TANDEM_ASSIGN_OR_RETURN(const std::string bytes, folder.ReadRequired(kModel, kMaxModelBytes));
  hash.Add(bytes);
  absl::StatusOr<TokenizerModel> model = ParseTokenizerModel(bytes);
  if (!model.ok()) return InFile(folder.PathOf(kModel), model.status());

  TANDEM_ASSIGN_OR_RETURN(const json config, ReadJson(folder, kConfig, hash));
  absl::Status added = AddDecoderTokens(config, model->vocabulary);
  if (!added.ok()) return InFile(folder.PathOf(kConfig), added);
  TANDEM_ASSIGN_OR_RETURN(const json tokens, ReadJson(folder, kAdded, hash));
  added = AddTokens(tokens, model->vocabulary);
  if (!added.ok()) return InFile(folder.PathOf(kAdded), added);

  HfTokenizer tokenizer;
  absl::StatusOr<Vocabulary> vocabulary = std::move(model->vocabulary).Finish(vocab_size);
  if (!vocabulary.ok()) return InFile(folder.PathOf(kModel), vocabulary.status());
  tokenizer.vocabulary = *std::move(vocabulary);
  const absl::StatusOr<std::optional<bool>> add_bos = JsonBool(config, "add_bos_token");
  if (!add_bos.ok()) return InFile(folder.PathOf(kConfig), add_bos.status());
  tokenizer.vocabulary.add_bos = add_bos->value_or(true);
  TANDEM_ASSIGN_OR_RETURN(tokenizer.chat_template, ReadChatTemplate(folder, config, hash));
  return tokenizer;
}

}  // namespace tandem::loader
