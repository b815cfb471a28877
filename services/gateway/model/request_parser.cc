#include "services/gateway/model/request_parser.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/random_bits.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/model/constrain_calls.h"
#include "services/gateway/model/text_tokens.h"
#include "services/gateway/tool_calls/functiongemma_parser.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

absl::StatusOr<SamplingParams> ParseSampling(const v1::SamplingParams& proto,
                                             const ServedModel& model) {
  SamplingParams params = model.sampling_defaults();
  if (proto.has_temperature()) params.temperature = proto.temperature();
  if (proto.has_top_k()) params.top_k = proto.top_k();
  if (proto.has_top_p()) params.top_p = proto.top_p();
  if (proto.has_min_p()) params.min_p = proto.min_p();
  if (proto.has_repetition_penalty()) params.repetition_penalty = proto.repetition_penalty();
  if (proto.has_presence_penalty()) params.presence_penalty = proto.presence_penalty();
  if (proto.has_frequency_penalty()) params.frequency_penalty = proto.frequency_penalty();
  if (proto.has_penalty_window()) params.penalty_window = proto.penalty_window();
  params.seed = proto.has_seed() ? proto.seed() : RandomBits();
  if (proto.logit_bias_size() > static_cast<int>(kMaxLogitBiases)) {
    return absl::InvalidArgumentError(absl::StrFormat("logit_bias: %d entries, %d at most",
                                                      proto.logit_bias_size(), kMaxLogitBiases));
  }
  for (const auto& [token, bias] : proto.logit_bias()) params.logit_bias[token] = bias;
  TANDEM_RETURN_IF_ERROR(params.Validate(model.config().vocab_size));
  if (params.penalty_window == 0) {
    params.penalty_window = kWholeText;
    params.repetition_penalty = 1.0f;
    params.presence_penalty = params.frequency_penalty = 0.0f;
  }
  return params;
}

absl::Status ParseLimits(const v1::GenerationLimits& proto, EngineRequest& request) {
  if (proto.has_max_tokens()) request.max_tokens = proto.max_tokens();
  request.ignore_eos = proto.ignore_eos();
  request.use_prefix_cache = !proto.has_cache_prompt() || proto.cache_prompt();
  if (proto.cache_salt().size() > kMaxCacheSaltBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "cache_salt: %d bytes, %d at most", proto.cache_salt().size(), kMaxCacheSaltBytes));
  }
  request.cache_salt = proto.cache_salt();
  if (proto.priority() < -kMaxPriority || proto.priority() > kMaxPriority) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "priority: %d, must be in [-%d, %d]", proto.priority(), kMaxPriority, kMaxPriority));
  }
  request.priority = proto.priority();
  if (proto.stop_size() > kMaxStops) {
    return absl::InvalidArgumentError(
        absl::StrFormat("stop: %d texts, %d at most", proto.stop_size(), kMaxStops));
  }
  for (int i = 0; i < proto.stop_size(); ++i) {
    if (proto.stop(i).empty() || proto.stop(i).size() > kMaxStopBytes) {
      return absl::InvalidArgumentError(absl::StrFormat("stop[%d]: %d bytes, must have 1 to %d", i,
                                                        proto.stop(i).size(), kMaxStopBytes));
    }
    request.stops.push_back(proto.stop(i));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ParseRequestId(const std::string& id) {
  if (id.empty()) return absl::StrFormat("%016x", RandomBits());
  if (id.size() > kMaxRequestIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("request_id: %d bytes, %d at most", id.size(), kMaxRequestIdBytes));
  }
  for (const char c : id) {
    if (c < 0x21 || c > 0x7E) {
      return absl::InvalidArgumentError("request_id: must be visible ASCII without spaces");
    }
  }
  return id;
}

// Request: v1::GenerateRequest or v1::EmbedInput.
template <class Request>
absl::StatusOr<std::vector<uint32_t>> ParsePrompt(const Request& request,
                                                  const ServedModel& model) {
  std::vector<uint32_t> prompt;
  if (request.has_tokens()) {
    TANDEM_RETURN_IF_ERROR(CheckPromptTokens(request.tokens().ids_size(), model));
    prompt.assign(request.tokens().ids().begin(), request.tokens().ids().end());
    for (size_t i = 0; i < prompt.size(); ++i) {
      if (prompt[i] < model.config().vocab_size) continue;
      return absl::InvalidArgumentError(absl::StrFormat("tokens[%d]: %d, the vocabulary has %d", i,
                                                        prompt[i], model.config().vocab_size));
    }
  } else if (request.has_text()) {
    TANDEM_ASSIGN_OR_RETURN(prompt, EncodePrompt(request.text(), model));
  } else {
    return absl::InvalidArgumentError("prompt: neither text nor tokens is set");
  }
  if (prompt.empty()) return absl::InvalidArgumentError("prompt: has no tokens");
  return prompt;
}

// The prompt, and the pictures in it.
absl::Status ParseMessages(const v1::ChatRequest& request, const ServedModel& model,
                           const PictureUrls& urls, EngineRequest& parsed) {
  if (request.messages_size() > kMaxMessages) {
    return absl::InvalidArgumentError(
        absl::StrFormat("messages: %d of them, at most %d in one request; join those of one role",
                        request.messages_size(), kMaxMessages));
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<Message> messages, MessagesOf(request, model.tool_format()));
  PicturePlaces places;
  auto files = std::make_shared<std::vector<std::string>>();
  auto urls_of_files = std::make_shared<std::vector<std::string>>();
  for (int i = 0; i < request.messages_size(); ++i) {
    for (const v1::Image& image : request.messages(i).images()) {
      if (model.pictures() == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrFormat("messages[%d].images: %s", i, model.why_no_pictures()));
      }
      places.num_rows = model.config().vision->tokens_per_image;
      const bool is_url = urls.checked.contains(image.data());
      files->push_back(is_url ? "" : image.data());
      urls_of_files->push_back(is_url ? image.data() : "");
    }
  }
  TANDEM_ASSIGN_OR_RETURN(parsed.prompt, EncodeChat(messages, model, &places));
  for (const uint32_t first : places.first) {
    parsed.pictures.push_back({first, places.num_rows, nullptr});
  }
  if (!files->empty() && model.pictures()->pan_and_scan()) {
    parsed.conversation = std::make_shared<Conversation>(Conversation{std::move(messages)});
  }
  if (!files->empty()) parsed.picture_files = std::move(files);
  if (!urls.checked.empty()) parsed.picture_urls = std::move(urls_of_files);
  return absl::OkStatus();
}

absl::Status ParseConstraint(const v1::Constraint& proto, EngineRequest& request) {
  using constraint::SourceKind;
  auto source = std::make_shared<constraint::ConstraintSource>();
  const auto set = [&](SourceKind kind, const char* field, const std::string& text = "") {
    source->kind = kind;
    source->text = text;
    request.constraint_field = field;
  };
  switch (proto.source_case()) {
    case v1::Constraint::kJson:
      if (!proto.json()) {
        return absl::InvalidArgumentError(
            "constraint.json: is false; leave the constraint out for an answer without one");
      }
      set(SourceKind::kJsonObject, "constraint.json");
      break;
    case v1::Constraint::kJsonSchema:
      set(SourceKind::kJsonSchema, "constraint.json_schema", proto.json_schema());
      break;
    case v1::Constraint::kRegex:
      set(SourceKind::kRegex, "constraint.regex", proto.regex());
      break;
    case v1::Constraint::kChoices:
      set(SourceKind::kChoices, "constraint.choices");
      source->choices.assign(proto.choices().texts().begin(), proto.choices().texts().end());
      break;
    case v1::Constraint::kGbnf:
      set(SourceKind::kGbnf, "constraint.gbnf", proto.gbnf());
      break;
    case v1::Constraint::kLark:
      set(SourceKind::kLark, "constraint.lark", proto.lark());
      break;
    case v1::Constraint::SOURCE_NOT_SET:
      return absl::InvalidArgumentError(
          "constraint: has none of json, json_schema, regex, choices, gbnf and lark");
  }
  request.constraint_source = std::move(source);
  return absl::OkStatus();
}

// Tokens of what the client expects of the answer.
absl::StatusOr<std::vector<uint32_t>> ParsePrediction(const std::string& text,
                                                      const ServedModel& model) {
  if (text.size() > kMaxPredictionBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("prediction: %d bytes, at most %d", text.size(), kMaxPredictionBytes));
  }
  // Nobody would read them.
  if (text.empty() || !model.replicas().drafts()) return std::vector<uint32_t>();
  auto tokens = TokensOf(text, /*add_bos=*/false, model);
  if (!tokens.ok()) {
    return absl::Status(tokens.status().code(),
                        absl::StrFormat("prediction: %s", std::string(tokens.status().message())));
  }
  return tokens;
}

// What the two kinds of request have in common.
template <class Request>
absl::StatusOr<EngineRequest> ParseCommon(const Request& proto, const ServedModel& model) {
  TANDEM_RETURN_IF_ERROR(model.CheckName(proto.model()));
  EngineRequest request;
  TANDEM_ASSIGN_OR_RETURN(request.request_id, ParseRequestId(proto.request_id()));
  TANDEM_ASSIGN_OR_RETURN(request.sampling, ParseSampling(proto.sampling(), model));
  TANDEM_RETURN_IF_ERROR(ParseLimits(proto.limits(), request));
  if (proto.logprobs() > kMaxLogprobs) {
    return absl::InvalidArgumentError(
        absl::StrFormat("logprobs: %d, must be in [0, %d]", proto.logprobs(), kMaxLogprobs));
  }
  TANDEM_ASSIGN_OR_RETURN(request.prediction, ParsePrediction(proto.prediction(), model));
  request.num_alternatives = std::min(proto.logprobs(), model.config().vocab_size);
  if (proto.has_constraint()) {
    TANDEM_RETURN_IF_ERROR(ParseConstraint(proto.constraint(), request));
  }
  return request;
}

// An error about input `i`, by its place.
absl::Status NameInput(const absl::Status& status, int i) {
  const std::string message(status.message());
  if (message.starts_with("context_length_exceeded")) {
    return absl::InvalidArgumentError(absl::StrFormat("%s (inputs[%d])", message, i));
  }
  return absl::Status(status.code(), absl::StrFormat("inputs[%d].%s", i, message));
}

}  // namespace

absl::StatusOr<std::vector<EngineRequest>> ParseEmbed(const v1::EmbedRequest& request,
                                                      const ServedModel& model) {
  TANDEM_RETURN_IF_ERROR(model.CheckName(request.model()));
  TANDEM_ASSIGN_OR_RETURN(const std::string request_id, ParseRequestId(request.request_id()));
  if (request.inputs_size() < 1 || request.inputs_size() > kMaxEmbedInputs) {
    return absl::InvalidArgumentError(absl::StrFormat("inputs: %d of them, must be 1 to %d",
                                                      request.inputs_size(), kMaxEmbedInputs));
  }
  const size_t most = std::max<size_t>(kMaxEmbedTokens, model.replicas().max_sequence_len());
  size_t num_tokens = 0;
  std::vector<EngineRequest> parsed(request.inputs_size());
  for (int i = 0; i < request.inputs_size(); ++i) {
    if (request.inputs(i).has_text() && request.inputs(i).text().empty()) {
      return absl::InvalidArgumentError(absl::StrFormat("inputs[%d].text: is empty", i));
    }
    auto prompt = ParsePrompt(request.inputs(i), model);
    if (!prompt.ok()) return NameInput(prompt.status(), i);
    num_tokens += prompt->size();
    if (num_tokens > most) {
      return absl::InvalidArgumentError(
          absl::StrFormat("inputs: the first %d of %d have %d tokens together, at most %d in one "
                          "request; send fewer at a time",
                          i + 1, request.inputs_size(), num_tokens, most));
    }
    parsed[i].request_id = request_id;
    parsed[i].prompt = *std::move(prompt);
    parsed[i].embedding = true;
    parsed[i].max_tokens = 0;
  }
  return parsed;
}

absl::StatusOr<EngineRequest> ParseGenerate(const v1::GenerateRequest& request,
                                            const ServedModel& model) {
  TANDEM_ASSIGN_OR_RETURN(EngineRequest parsed, ParseCommon(request, model));
  TANDEM_ASSIGN_OR_RETURN(parsed.prompt, ParsePrompt(request, model));
  parsed.prompt_logprobs = request.prompt_logprobs();
  return parsed;
}

absl::StatusOr<EngineRequest> ParseChat(const v1::ChatRequest& request, const ServedModel& model) {
  return ParseChatWithUrls(request, model, /*urls=*/{});
}

absl::StatusOr<EngineRequest> ParseChatWithUrls(const v1::ChatRequest& request,
                                                const ServedModel& model, const PictureUrls& urls) {
  TANDEM_ASSIGN_OR_RETURN(EngineRequest parsed, ParseCommon(request, model));
  TANDEM_RETURN_IF_ERROR(ParseMessages(request, model, urls, parsed));
  TANDEM_RETURN_IF_ERROR(ConstrainCalls(request, model.tool_format(), parsed));
  parsed.chat = true;
  if (model.tool_format() == ToolFormat::kFunctionGemma &&
      !CallOptionsOf(request, model.tool_format()).names.empty()) {
    parsed.shown_tokens = model.tool_tokens();
    // The model waits for the result then.
    parsed.stops.emplace_back(kStartResponse);
  }
  return parsed;
}

}  // namespace tandem::gateway
