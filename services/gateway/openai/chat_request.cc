#include "services/gateway/openai/chat_request.h"

#include <optional>

#include "services/gateway/openai/chat_messages.h"
#include "services/gateway/openai/chat_writer.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/service/request_parser.h"

namespace tandem::gateway {
namespace {

// What changes the answer, or costs more than text, and is not done here: refused, never ignored.
void RefuseUnsupported(JsonFields& fields) {
  fields.RefuseIfSet("tools", kNoTools);
  fields.RefuseIfSet("functions", kNoTools);
  for (const char* name : {"tool_choice", "function_call"}) {
    const Json* choice = fields.Find(name);
    if (choice != nullptr && *choice != "none" && *choice != "auto") {
      fields.Unsupported(name, kNoTools);
    }
  }
  if (const Json* format = fields.Object("response_format")) {
    JsonFields inner(*format, fields.error(), "response_format.");
    inner.RefuseUnless("type", "text", "answers cannot be bound to a format; only 'text' is.");
  }
  fields.RefuseUnless("modalities", Json::array({"text"}), "only text is answered.");
  fields.RefuseIfSet("audio", "only text is answered.");
  fields.RefuseIfSet("prediction", "predicted outputs are not supported.");
  fields.RefuseUnless("reasoning_effort", "none", "this model does not reason separately.");
  fields.RefuseIfSet("web_search_options", "there is no web search here.");
  fields.RefuseIfSet("store", "nothing is stored here.");
  const Json* tier = fields.Find("service_tier");
  if (tier != nullptr && *tier != "auto" && *tier != "default") {
    fields.Unsupported("service_tier", "only 'auto' and 'default' exist here.");
  }
}

void ReadMaxTokens(JsonFields& fields, v1::GenerationLimits& limits) {
  const auto older = fields.Integer("max_tokens", 1, kNoTokenLimit);
  const auto newer = fields.Integer("max_completion_tokens", 1, kNoTokenLimit);
  if (older.has_value() && newer.has_value() && *older != *newer) {
    fields.Fail("max_tokens", "invalid_value",
                "Setting 'max_tokens' and 'max_completion_tokens' to different values is not "
                "supported.");
  }
  const auto most = newer.has_value() ? newer : older;
  if (most.has_value()) limits.set_max_tokens(static_cast<uint32_t>(*most));
}

// The alternatives wanted with each token; nullopt: no log-probabilities.
std::optional<uint32_t> ReadLogprobs(JsonFields& fields) {
  const bool wanted = fields.Bool("logprobs").value_or(false);
  const auto top = fields.Integer("top_logprobs", 0, kMaxLogprobs);
  if (top.has_value() && *top > 0 && !wanted) {
    fields.Fail("top_logprobs", "invalid_value",
                "Invalid 'top_logprobs': 'logprobs' must be true for it.");
  }
  if (!wanted) return std::nullopt;
  return static_cast<uint32_t>(top.value_or(0));
}

}  // namespace

absl::StatusOr<ApiJob> MakeChatJob(const Json& body, const ServedModel& model,
                                   const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  CheckModel(fields, model);
  v1::ChatRequest request;
  request.set_request_id(request_id);
  ReadMessages(fields, "messages", request);
  *request.mutable_sampling() = ReadSampling(fields);
  ReadMaxTokens(fields, *request.mutable_limits());
  ReadStops(fields, *request.mutable_limits());
  const auto logprobs = ReadLogprobs(fields);
  if (logprobs.has_value()) request.set_logprobs(*logprobs);
  const StreamOptions stream = ReadStreamOptions(fields);
  const int64_t num_choices = fields.Integer("n", 1, kMaxChoices).value_or(1);
  fields.String("user");
  RefuseUnsupported(fields);
  if (!error.ok()) return error;

  const auto parsed = ParseChat(request, model);
  if (!parsed.ok()) return NamePrompt(parsed.status(), "messages");
  ApiJob job;
  job.runs = MakeChoices(*parsed, num_choices);
  job.writer = MakeChatWriter(model, {.stream = stream.stream,
                                      .include_usage = stream.include_usage,
                                      .logprobs = logprobs.has_value(),
                                      .ignore_eos = parsed->ignore_eos,
                                      .num_choices = static_cast<size_t>(num_choices)});
  return job;
}

}  // namespace tandem::gateway
