#include "services/gateway/ollama/ollama_request.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/constraint_member.h"
#include "services/gateway/api/image_members.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/api/penalty_window.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/ollama/ollama_writer.h"
#include "services/gateway/tool_calls/tool_messages.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// Reads the part of `options` that concerns the answer.  Options about the machine (num_ctx,
// num_gpu, num_thread, ...) are ignored: the server's flags set them.
void ReadOptions(JsonFields& fields, v1::SamplingParams& sampling, v1::GenerationLimits& limits) {
  const Json* object = fields.Object("options");
  if (object == nullptr) return;
  JsonFields options(*object, fields.error(), fields.PathOf("options."));
  const auto number = [&options](const char* name, double low, double high, const auto& set) {
    if (const auto value = options.Number(name, low, high)) set(static_cast<float>(*value));
  };
  number("temperature", 0.0, 100.0, [&](float value) { sampling.set_temperature(value); });
  // 0 keeps the best token alone, as the smallest p above 0 does.
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
  // -1 and no seed: a new seed for each request.
  const auto seed = options.Seed("seed");
  if (seed.has_value() && *seed != std::numeric_limits<uint64_t>::max()) sampling.set_seed(*seed);
  // 0 and below: no limit.
  const auto num_predict = options.Integer("num_predict", -2, kMaxInt);
  if (num_predict.value_or(-1) > 0) limits.set_max_tokens(static_cast<uint32_t>(*num_predict));
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
  fields.RefuseIfSet("think", "this server does not support thinking.");
  fields.RefuseIfSet("suffix", "this server does not fill in the middle.");
  fields.RefuseIfSet("template", "this server does not take templates, it uses the model's.");
  fields.RefuseIfSet("context",
                     "this server does not keep contexts; send the conversation to /api/chat.");
}

// "json" or a schema.
void ReadFormat(JsonFields& fields, ConstraintMember& member) {
  const Json* format = fields.Find("format");
  if (format == nullptr || *format == "") return;
  if (*format == "json") {
    if (v1::Constraint* constraint = member.Set(fields, "format")) constraint->set_json(true);
  } else if (format->is_object()) {
    ReadSchema(fields, "format", /*or_text=*/false, member);
  } else {
    fields.Fail("format", "invalid_value",
                absl::StrFormat("invalid format: %s; expected \"json\" or a JSON Schema, which is "
                                "an object",
                                ClientText(DumpJson(*format))));
  }
}

struct Common {
  v1::SamplingParams sampling;
  v1::GenerationLimits limits;
  std::optional<uint32_t> logprobs;
  ConstraintMember format;
  OllamaWriterOptions writer;
};

Common ReadCommon(JsonFields& fields) {
  Common common;
  ReadOptions(fields, common.sampling, common.limits);
  RefuseUnsupported(fields);
  ReadFormat(fields, common.format);
  common.writer.stream = fields.Bool("stream").value_or(true);
  common.writer.model = fields.String("model").value_or("");
  const auto top = fields.Integer("top_logprobs", 0, kMaxLogprobs);
  common.writer.logprobs = fields.Bool("logprobs").value_or(false);
  if (common.writer.logprobs) common.logprobs = static_cast<uint32_t>(top.value_or(0));
  return common;
}

// Tools and calls have OpenAI's shape, but arguments are an object.
void ReadOllamaTools(JsonFields& fields, v1::ChatRequest& request) {
  const Json* tools = fields.Array("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("tools[%d]", i);
    const Json& element = (*tools)[i];
    if (!element.is_object()) {
      return fields.Fail(at, "invalid_type", absl::StrFormat("%s: expected an object", at));
    }
    JsonFields tool(element, fields.error(), at + ".");
    tool.RefuseUnless("type", "function", "this server calls functions alone.");
    const Json* object = tool.Object("function");
    if (object == nullptr) return tool.Missing("function");
    JsonFields function(*object, fields.error(), at + ".function.");
    const auto name = function.String("name");
    if (!name.has_value()) function.Missing("name");
    v1::Tool* added = request.add_tools();
    added->set_name(name.value_or(""));
    added->set_description(function.String("description").value_or(""));
    if (const Json* parameters = function.Object("parameters")) {
      added->set_parameters_json(DumpJson(*parameters));
    }
  }
}

void ReadOllamaCalls(JsonFields& message, v1::ChatMessage& added) {
  const Json* calls = message.Array("tool_calls");
  if (calls == nullptr) return;
  for (size_t i = 0; i < calls->size() && message.ok(); ++i) {
    const std::string at = absl::StrFormat("tool_calls[%d]", i);
    const Json& element = (*calls)[i];
    if (!element.is_object()) {
      return message.Fail(at, "invalid_type",
                          absl::StrFormat("%s: expected an object", message.PathOf(at)));
    }
    JsonFields call(element, message.error(), message.PathOf(at) + ".");
    const Json* object = call.Object("function");
    if (object == nullptr) return call.Missing("function");
    JsonFields function(*object, message.error(), call.PathOf("function."));
    const auto name = function.String("name");
    if (!name.has_value()) function.Missing("name");
    v1::ToolCall* to = added.add_tool_calls();
    to->set_id(call.String("id").value_or(""));
    to->set_name(name.value_or(""));
    if (const Json* arguments = function.Object("arguments")) {
      to->set_arguments_json(DumpJson(*arguments));
    }
  }
}

void AddMessage(v1::ChatRequest& request, const std::string& role, const std::string& content) {
  v1::ChatMessage* message = request.add_messages();
  message->set_role(role);
  message->set_content(content);
}

// Pictures come before the text, as in Ollama's prompts.
void ReadOllamaImages(JsonFields& fields, v1::ChatMessage& message) {
  const Json* images = fields.Array("images");
  if (images == nullptr) return;
  for (size_t i = 0; i < images->size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("images[%d]", i);
    const Json& image = (*images)[i];
    if (!image.is_string()) return fields.WrongType(at, "a string");
    AddImageData(fields, at, image.get_ref<const std::string&>(), 0, message);
  }
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
    AddMessage(request, role.value_or(""), message.String("content").value_or(""));
    v1::ChatMessage* added = request.mutable_messages(request.messages_size() - 1);
    ReadOllamaImages(message, *added);
    ReadOllamaCalls(message, *added);
    if (added->role() != "tool") continue;
    added->set_tool_call_id(message.String("tool_call_id").value_or(""));
    const std::string older = message.String("name").value_or("");
    added->set_tool_name(message.String("tool_name").value_or(older));
  }
}

// The job of a chat, templated.
absl::StatusOr<ApiJob> MakeChat(v1::ChatRequest& request, Common common, const ServedModel& model) {
  *request.mutable_sampling() = common.sampling;
  *request.mutable_limits() = common.limits;
  if (common.logprobs.has_value()) request.set_logprobs(*common.logprobs);
  common.format.CopyTo(request);
  ApiJob job;
  job.constraint_names = common.format.NamesIn(request);
  if (request.messages_size() > 0) {
    auto parsed = ParseChat(request, model);
    if (!parsed.ok()) return NameParsedConstraint(parsed.status(), job.constraint_names);
    job.runs.push_back(*std::move(parsed));
  }
  common.writer.calls = CallOptionsOf(request, model.tool_format());
  job.logprobs.copies = common.logprobs.has_value() && !common.writer.stream ? 1 : 0;
  job.writer = MakeOllamaWriter(model, common.writer);
  return job;
}

}  // namespace

absl::Status CheckOllamaName(const std::string& name, const ServedModel& model) {
  if (name.empty()) return ParamError("model", "missing", "model is required");
  const ModelNames& names = model.names();
  if (names.Resolve(name).ok()) return absl::OkStatus();
  // Clients look for these words of Ollama's.
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
  ReadOllamaTools(fields, request);
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
  const Json* const images = fields.Array("images");
  const bool has_images = images != nullptr && !images->empty();
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(CheckOllamaName(common.writer.model, model));
  if (!raw || prompt.empty()) {
    v1::ChatRequest request;
    request.set_request_id(request_id);
    if (!prompt.empty() || has_images) {
      if (!system.empty()) AddMessage(request, "system", system);
      AddMessage(request, "user", prompt);
      ReadOllamaImages(fields, *request.mutable_messages(request.messages_size() - 1));
      if (!error.ok()) return error;
    }
    return MakeChat(request, common, model);
  }
  fields.RefuseIfSet("images", "a raw prompt takes no images; leave out 'raw'.");
  if (!error.ok()) return error;
  v1::GenerateRequest request;
  request.set_request_id(request_id);
  request.set_text(prompt);
  *request.mutable_sampling() = common.sampling;
  *request.mutable_limits() = common.limits;
  if (common.logprobs.has_value()) request.set_logprobs(*common.logprobs);
  common.format.CopyTo(request);
  ApiJob job;
  job.constraint_names.member = common.format.name();
  TANDEM_ASSIGN_OR_RETURN(EngineRequest parsed, ParseGenerate(request, model));
  job.runs.push_back(std::move(parsed));
  job.logprobs.copies = common.logprobs.has_value() && !common.writer.stream ? 1 : 0;
  job.writer = MakeOllamaWriter(model, common.writer);
  return job;
}

}  // namespace tandem::gateway
