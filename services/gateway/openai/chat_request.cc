#include "services/gateway/openai/chat_request.h"

#include <optional>

#include "services/gateway/api/image_members.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/openai/answer_format.h"
#include "services/gateway/openai/chat_messages.h"
#include "services/gateway/openai/chat_writer.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/tool_fields.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

// What changes the answer, or costs more than text, and is not done here: refused, never ignored.
void RefuseUnsupported(JsonFields& fields) {
  fields.RefuseIfSet("functions", "it is of an older API; send 'tools'.");
  const Json* older_choice = fields.Find("function_call");
  if (older_choice != nullptr && *older_choice != "none" && *older_choice != "auto") {
    fields.Unsupported("function_call", "it is of an older API; send 'tool_choice'.");
  }
  fields.RefuseUnless("modalities", Json::array({"text"}),
                      "this server does not answer with anything but text.");
  fields.RefuseIfSet("audio", "this server does not answer with anything but text.");
  fields.String("reasoning_effort");  // no effect: the model does not reason before it answers
  fields.RefuseIfSet("web_search_options", "this server does not search the web.");
  fields.Bool("store");
  const Json* tier = fields.Find("service_tier");
  if (tier != nullptr && *tier != "auto" && *tier != "default") {
    fields.Unsupported("service_tier",
                       "this server does not have service tiers; send 'auto' or 'default'.");
  }
}

// What the client expects of the answer; empty: nothing.
std::string ReadPrediction(JsonFields& fields) {
  const Json* prediction = fields.Object("prediction");
  if (prediction == nullptr || prediction->empty()) return "";
  JsonFields members(*prediction, fields.error(), fields.PathOf("prediction."));
  const auto type = members.String("type");
  if (!type.has_value()) members.Missing("type");
  if (type.has_value() && *type != "content") {
    members.Unsupported("type", "this server takes predictions of type \"content\" alone.");
  }
  return members.ok() ? ReadContent(members, {"text"}) : "";
}

void ReadMaxTokens(JsonFields& fields, v1::GenerationLimits& limits) {
  const auto older = ReadTokenLimit(fields, "max_tokens", 1);
  const auto newer = ReadTokenLimit(fields, "max_completion_tokens", 1);
  if (older.has_value() && newer.has_value() && *older != *newer) {
    fields.Fail("max_tokens", "invalid_value",
                "Setting 'max_tokens' and 'max_completion_tokens' to different values is not "
                "supported.");
  }
  const auto most = newer.has_value() ? newer : older;
  if (most.has_value()) limits.set_max_tokens(*most);
}

// How many alternatives to report with each token; nullopt: no log-probabilities.
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
  PictureUrls urls = PictureUrlsOf(model);
  ReadMessages(fields, "messages", urls, request);
  *request.mutable_sampling() = ReadSampling(fields);
  ReadMaxTokens(fields, *request.mutable_limits());
  ReadStops(fields, *request.mutable_limits());
  const auto logprobs = ReadLogprobs(fields);
  if (logprobs.has_value()) request.set_logprobs(*logprobs);
  const StreamOptions stream = ReadStreamOptions(fields);
  const int64_t num_choices = fields.Integer("n", 1, kMaxChoices).value_or(1);
  fields.String("user");
  request.set_prediction(ReadPrediction(fields));
  RefuseUnsupported(fields);
  IgnoredMembers ignored;
  ReadTools(fields, "function", request, ignored);
  const ConstraintMember format = ReadAnswerFormat(fields);
  format.CopyTo(request);
  for (const char* name : {"store", "reasoning_effort"}) ignored.Note(fields, name);
  if (!error.ok()) return error;

  const auto parsed = ParseChatWithUrls(request, model, urls);
  const ConstraintNames names = format.NamesIn(request);
  if (!parsed.ok()) return NameParsedConstraint(NamePrompt(parsed.status(), "messages"), names);
  ApiJob job;
  job.runs = MakeChoices(*parsed, num_choices);
  job.logprobs.copies = logprobs.has_value() && !stream.stream ? 1 : 0;
  job.constraint_names = names;
  job.writer = MakeChatWriter(model, {.stream = stream.stream,
                                      .include_usage = stream.include_usage,
                                      .logprobs = logprobs.has_value(),
                                      .ignore_eos = parsed->ignore_eos,
                                      .ignored = ignored.names(),
                                      .num_choices = static_cast<size_t>(num_choices),
                                      .calls = CallOptionsOf(request, model.tool_format())});
  return job;
}

}  // namespace tandem::gateway
