#include "services/gateway/openai/responses_request.h"

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/gateway/openai/chat_messages.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/responses_writer.h"
#include "services/gateway/service/request_parser.h"

namespace tandem::gateway {
namespace {

constexpr char kLogprobsInclude[] = "message.output_text.logprobs";
// Agents ask for it whatever the model; there is no reasoning to include.
constexpr char kReasoningInclude[] = "reasoning.encrypted_content";

void RefuseStateAndTools(JsonFields& fields, IgnoredMembers& ignored) {
  constexpr char kNoState[] =
      "this server does not keep responses; send the whole conversation in 'input'.";
  for (const char* name : {"previous_response_id", "conversation"}) {
    fields.RefuseIfSet(name, kNoState);
  }
  fields.RefuseIfSet("background", "this server does not answer in the background.");
  fields.Bool("store");
  ignored.Note(fields, "store");
  fields.RefuseIfSet("tools", kNoTools);
  fields.RefuseIfSet("max_tool_calls", kNoTools);
  const Json* choice = fields.Find("tool_choice");
  if (choice != nullptr && *choice != "none" && *choice != "auto") {
    fields.Unsupported("tool_choice", kNoTools);
  }
  if (const Json* text = fields.Object("text")) {
    JsonFields inner(*text, fields.error(), "text.");
    if (const Json* format = inner.Object("format")) {
      JsonFields type(*format, fields.error(), "text.format.");
      type.RefuseUnless("type", "text", "this server does not bind answers to a format.");
    }
  }
  if (const Json* reasoning = fields.Object("reasoning")) {
    JsonFields inner(*reasoning, fields.error(), "reasoning.");
    for (const char* name : {"effort", "summary", "generate_summary"}) {
      inner.String(name);
      ignored.Note(inner, name);
    }
  }
  fields.RefuseIfSet("prompt", "this server does not keep prompts; send the text in 'input'.");
  fields.RefuseUnless("truncation", "disabled", "this server does not cut prompts.");
}

void ReadInput(JsonFields& fields, const Json& body, v1::ChatRequest& request) {
  if (const auto instructions = fields.String("instructions")) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("system");
    message->set_content(*instructions);
  }
  const Json* input = fields.Find("input");
  if (input == nullptr) return fields.Missing("input");
  if (input->is_string()) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content(input->get<std::string>());
    return;
  }
  if (!input->is_array()) return fields.WrongType("input", "a string or an array of messages");
  for (size_t i = 0; i < input->size(); ++i) {
    if (!(*input)[i].is_object()) continue;  // ReadMessages says so
    JsonFields item((*input)[i], fields.error(), absl::StrFormat("input[%d].", i));
    item.RefuseUnless("type", "message", "this server does not take items other than messages.");
  }
  JsonFields outer(body, fields.error());
  ReadMessages(outer, "input", request);
}

bool ReadIncludesLogprobs(JsonFields& fields) {
  bool logprobs = false;
  for (const std::string& include : fields.Strings("include", 16)) {
    if (include == kLogprobsInclude) {
      logprobs = true;
    } else if (include != kReasoningInclude) {
      fields.Unsupported("include", absl::StrFormat("\"%s\": this server does not include "
                                                    "anything but \"%s\".",
                                                    ClientText(include), kLogprobsInclude));
    }
  }
  return logprobs;
}

}  // namespace

absl::StatusOr<ApiJob> MakeResponsesJob(const Json& body, const ServedModel& model,
                                        const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  CheckModel(fields, model);
  v1::ChatRequest request;
  request.set_request_id(request_id);
  IgnoredMembers ignored;
  RefuseStateAndTools(fields, ignored);
  ReadInput(fields, body, request);
  *request.mutable_sampling() = ReadSampling(fields);
  const auto max_tokens = ReadTokenLimit(fields, "max_output_tokens", 1);
  if (max_tokens.has_value()) request.mutable_limits()->set_max_tokens(*max_tokens);
  const bool logprobs = ReadIncludesLogprobs(fields);
  const auto top_logprobs = fields.Integer("top_logprobs", 0, kMaxLogprobs);
  if (logprobs) request.set_logprobs(static_cast<uint32_t>(top_logprobs.value_or(0)));
  const bool stream = fields.Bool("stream").value_or(false);
  fields.String("user");
  const Json* metadata = fields.Object("metadata");
  if (!error.ok()) return error;

  const auto parsed = ParseChat(request, model);
  if (!parsed.ok()) return NamePrompt(parsed.status(), "input");
  ResponsesWriterOptions options{.stream = stream,
                                 .logprobs = logprobs,
                                 .ignored = ignored.names(),
                                 .top_logprobs = top_logprobs.value_or(0),
                                 .temperature = parsed->sampling.temperature,
                                 .top_p = parsed->sampling.top_p};
  if (max_tokens.value_or(kNoTokenLimit) != kNoTokenLimit) options.max_output_tokens = *max_tokens;
  if (const Json* instructions = fields.Find("instructions")) options.instructions = *instructions;
  if (metadata != nullptr) options.metadata = *metadata;
  ApiJob job;
  job.runs.push_back(*parsed);
  job.writer = MakeResponsesWriter(model, std::move(options));
  return job;
}

}  // namespace tandem::gateway
