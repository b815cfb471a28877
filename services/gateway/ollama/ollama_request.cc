#include "services/gateway/ollama/ollama_request.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/api/penalty_window.h"
#include "services/gateway/ollama/ollama_writer.h"
#include "services/gateway/service/request_parser.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

constexpr char kNoImages[] = "this server does not take images.";
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// `options`, as far as it is about the answer.  What is about the machine (num_ctx, num_gpu,
// num_thread, ...) is not for a client to say here and is left alone.
void ReadOptions(JsonFields& fields, v1::SamplingParams& sampling, v1::GenerationLimits& limits) {
  const Json* object = fields.Object("options");
  if (object == nullptr) return;
  JsonFields options(*object, fields.error(), fields.PathOf("options."));
  const auto number = [&options](const char* name, double low, double high, const auto& set) {
    if (const auto value = options.Number(name, low, high)) set(static_cast<float>(*value));
  };
  number("temperature", 0.0, 100.0, [&](float value) { sampling.set_temperature(value); });
  // The smallest set that reaches 0 is the best token alone, as with the least p above 0.
  number("top_p", 0.0, 1.0, [&](float value) {
    sampling.set_top_p(std::max(value, std::numeric_limits<float>::min()));
  });
  number("min_p", 0.0, 1.0, [&](float value) { sampling.set_min_p(value); });
  number("repeat_penalty", 0.01, 100.0,
         [&](float value) { sampling.set_repetition_penalty(value); });
  number("presence_penalty", -2.0, 2.0, [&](float value) { sampling.set_presence_penalty(value); });
  number("frequency_penalty", -2.0, 2.0,
         [&](float value) { sampling.set_frequency_penalty(value); });
  if (const auto top_k = options.Integer("top_k", -1, kMaxInt)) {
    sampling.set_top_k(static_cast<uint32_t>(std::max<int64_t>(*top_k, 0)));
  }
  // -1, as none: a new one each time.
  const auto seed = options.Seed("seed");
  if (seed.has_value() && *seed != std::numeric_limits<uint64_t>::max()) sampling.set_seed(*seed);
  // Negative: no limit.
  const auto num_predict = options.Integer("num_predict", -2, kMaxInt);
  if (num_predict.value_or(-1) >= 0) limits.set_max_tokens(static_cast<uint32_t>(*num_predict));
  for (std::string& stop : options.Strings("stop", kMaxStops)) limits.add_stop(std::move(stop));
  const bool penalised = sampling.has_repetition_penalty() || sampling.has_presence_penalty() ||
                         sampling.has_frequency_penalty();
  ReadPenaltyWindow(options, /*by_default=*/penalised, sampling);
  options.RefuseUnless("mirostat", 0, "this server does not do Mirostat sampling.");
  const Json* typical = options.Find("typical_p");
  if (typical != nullptr && *typical != 1.0) {
    options.Unsupported("typical_p", "this server does not do typical sampling.");
  }
}

void RefuseUnsupported(JsonFields& fields) {
  fields.RefuseIfSet("tools", "this server does not call tools.");
  fields.RefuseIfSet("format", "this server does not bind answers to a format.");
  fields.RefuseIfSet("think", "this server does not support thinking.");
  fields.RefuseIfSet("images", kNoImages);
  fields.RefuseIfSet("suffix", "this server does not fill in the middle.");
  fields.RefuseIfSet("template", "this server does not take templates, it uses the model's.");
  fields.RefuseIfSet("context",
                     "this server does not keep contexts; send the conversation to /api/chat.");
}

struct Common {
  v1::SamplingParams sampling;
  v1::GenerationLimits limits;
  std::optional<uint32_t> logprobs;
  OllamaWriterOptions writer;
};

Common ReadCommon(JsonFields& fields) {
  Common common;
  ReadOptions(fields, common.sampling, common.limits);
  RefuseUnsupported(fields);
  common.writer.stream = fields.Bool("stream").value_or(true);
  common.writer.model = fields.String("model").value_or("");
  const auto top = fields.Integer("top_logprobs", 0, kMaxLogprobs);
  common.writer.logprobs = fields.Bool("logprobs").value_or(false);
  if (common.writer.logprobs) common.logprobs = static_cast<uint32_t>(top.value_or(0));
  return common;
}

void AddMessage(v1::ChatRequest& request, const std::string& role, const std::string& content) {
  v1::ChatMessage* message = request.add_messages();
  message->set_role(role);
  message->set_content(content);
}

void ReadOllamaMessages(JsonFields& fields, v1::ChatRequest& request) {
  const Json* messages = fields.Array("messages");
  if (messages == nullptr) return;
  for (size_t i = 0; i < messages->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("messages[%d]", i);
    if (!(*messages)[i].is_object()) {
      return fields.Fail(at, "invalid_type", absl::StrFormat("%s: expected an object", at));
    }
    JsonFields message((*messages)[i], fields.error(), at + ".");
    const auto role = message.String("role");
    if (!role.has_value()) message.Missing("role");
    message.RefuseIfSet("images", kNoImages);
    message.RefuseIfSet("tool_calls", "this server does not call tools.");
    AddMessage(request, role.value_or(""), message.String("content").value_or(""));
  }
}

// The job of a chat, templated.
absl::StatusOr<ApiJob> MakeChat(v1::ChatRequest& request, const Common& common,
                                const ServedModel& model) {
  *request.mutable_sampling() = common.sampling;
  *request.mutable_limits() = common.limits;
  if (common.logprobs.has_value()) request.set_logprobs(*common.logprobs);
  ApiJob job;
  if (request.messages_size() > 0) {
    TANDEM_ASSIGN_OR_RETURN(EngineRequest parsed, ParseChat(request, model));
    job.runs.push_back(std::move(parsed));
  }
  job.writer = MakeOllamaWriter(model, common.writer);
  return job;
}

}  // namespace

absl::Status CheckOllamaName(const std::string& name, const ServedModel& model) {
  if (name.empty()) return ParamError("model", "missing", "model is required");
  const ModelNames& names = model.names();
  if (names.Resolve(name).ok()) return absl::OkStatus();
  // Ollama's words, which clients look for.
  std::string known;
  for (const std::string& listed : names.listed()) {
    known += absl::StrFormat("%s'%s'", known.empty() ? "" : ", ", listed);
  }
  return absl::NotFoundError(
      absl::StrFormat("model '%s' not found, this server serves %s", ClientText(name, 256), known));
}

absl::StatusOr<ApiJob> MakeOllamaChatJob(const Json& body, const ServedModel& model,
                                         const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  Common common = ReadCommon(fields);
  common.writer.chat = true;
  v1::ChatRequest request;
  request.set_request_id(request_id);
  ReadOllamaMessages(fields, request);
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(CheckOllamaName(common.writer.model, model));
  return MakeChat(request, common, model);
}

absl::StatusOr<ApiJob> MakeOllamaGenerateJob(const Json& body, const ServedModel& model,
                                             const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  const Common common = ReadCommon(fields);
  const std::string prompt = fields.String("prompt").value_or("");
  const std::string system = fields.String("system").value_or("");
  const bool raw = fields.Bool("raw").value_or(false);
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(CheckOllamaName(common.writer.model, model));
  if (!raw || prompt.empty()) {
    v1::ChatRequest request;
    request.set_request_id(request_id);
    if (!prompt.empty()) {
      if (!system.empty()) AddMessage(request, "system", system);
      AddMessage(request, "user", prompt);
    }
    return MakeChat(request, common, model);
  }
  v1::GenerateRequest request;
  request.set_request_id(request_id);
  request.set_text(prompt);
  *request.mutable_sampling() = common.sampling;
  *request.mutable_limits() = common.limits;
  if (common.logprobs.has_value()) request.set_logprobs(*common.logprobs);
  ApiJob job;
  TANDEM_ASSIGN_OR_RETURN(EngineRequest parsed, ParseGenerate(request, model));
  job.runs.push_back(std::move(parsed));
  job.writer = MakeOllamaWriter(model, common.writer);
  return job;
}

}  // namespace tandem::gateway
