#include "services/gateway/openai/responses_request.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/image_members.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/openai/answer_format.h"
#include "services/gateway/openai/chat_messages.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/responses_writer.h"
#include "services/gateway/openai/tool_fields.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

constexpr char kLogprobsInclude[] = "message.output_text.logprobs";
// Agents ask for it with every model.  It has no effect: the model does not reason.
constexpr char kReasoningInclude[] = "reasoning.encrypted_content";

void RefuseState(JsonFields& fields, IgnoredMembers& ignored) {
  constexpr char kNoState[] =
      "this server does not keep responses; send the whole conversation in 'input'.";
  for (const char* name : {"previous_response_id", "conversation"}) {
    fields.RefuseIfSet(name, kNoState);
  }
  fields.RefuseIfSet("background", "this server does not answer in the background.");
  fields.Bool("store");
  ignored.Note(fields, "store");
  fields.RefuseIfSet("max_tool_calls", "this server does not run tools itself.");
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

// Calls in a row belong to one message of the assistant, after its text.
void ReadCall(JsonFields& item, v1::ChatRequest& request) {
  const int last = request.messages_size() - 1;
  v1::ChatMessage* message = last >= 0 && request.messages(last).role() == "assistant"
                                 ? request.mutable_messages(last)
                                 : request.add_messages();
  message->set_role("assistant");
  const auto id = item.String("call_id");
  const auto name = item.String("name");
  if (!id.has_value()) item.Missing("call_id");
  if (!name.has_value()) item.Missing("name");
  v1::ToolCall* call = message->add_tool_calls();
  call->set_id(id.value_or(""));
  call->set_name(name.value_or(""));
  call->set_arguments_json(item.String("arguments").value_or(""));
}

void ReadCallOutput(JsonFields& item, PictureUrls& urls, v1::ChatRequest& request) {
  const auto id = item.String("call_id");
  if (!id.has_value()) item.Missing("call_id");
  v1::ChatMessage* message = request.add_messages();
  message->set_role("tool");
  message->set_tool_call_id(id.value_or(""));
  message->set_content(
      ReadContent(item, {"input_text"}, "output", {.message = message, .urls = &urls}));
}

// The text of an answer that follows its calls belongs to their message: results refer to it.
void JoinCalls(v1::ChatRequest& request) {
  if (request.messages_size() < 2) return;
  v1::ChatMessage& last = *request.mutable_messages(request.messages_size() - 1);
  v1::ChatMessage& before = *request.mutable_messages(request.messages_size() - 2);
  const bool calls = before.role() == "assistant" && before.tool_calls_size() > 0;
  if (!calls || last.role() != "assistant" || last.images_size() > 0) return;
  if (!before.content().empty() && !last.content().empty()) before.mutable_content()->append("\n");
  before.mutable_content()->append(last.content());
  request.mutable_messages()->RemoveLast();
}

// `places[i]`: the item that the request's message i comes from.
void ReadItems(JsonFields& fields, const Json& input, v1::ChatRequest& request, PictureUrls& urls,
               std::vector<size_t>& places) {
  if (input.empty()) {
    return fields.Fail("input", "empty_array",
                       "Invalid 'input': empty array. Expected at least one element.");
  }
  for (size_t i = 0; i < input.size() && fields.ok(); ++i) {
    const std::string at = absl::StrFormat("input[%d]", i);
    const Json* element = ObjectAt(fields, at, input[i]);
    if (element == nullptr) return;
    JsonFields item(*element, fields.error(), at + ".");
    const std::string type = item.String("type").value_or("message");
    if (type == "message") {
      ReadMessage(fields, at, *element, urls, request);
      JoinCalls(request);
    } else if (type == "function_call") {
      ReadCall(item, request);
    } else if (type == "function_call_output") {
      ReadCallOutput(item, urls, request);
    } else {
      item.Unsupported("type",
                       "this server does not take items other than messages, calls of "
                       "functions and their results.");
    }
    places.resize(request.messages_size(), i);
  }
}

void ReadInput(JsonFields& fields, v1::ChatRequest& request, PictureUrls& urls,
               std::vector<size_t>& places) {
  if (const auto instructions = fields.String("instructions")) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("system");
    message->set_content(*instructions);
    places.push_back(0);
  }
  const Json* input = fields.Find("input");
  if (input == nullptr) return fields.Missing("input");
  if (input->is_string()) {
    v1::ChatMessage* message = request.add_messages();
    message->set_role("user");
    message->set_content(input->get<std::string>());
    return;
  }
  if (!input->is_array()) return fields.WrongType("input", "a string or an array of items");
  ReadItems(fields, *input, request, urls, places);
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
  RefuseState(fields, ignored);
  ReadTools(fields, /*within=*/"", request, ignored);
  const ConstraintMember format = ReadTextFormat(fields);
  format.CopyTo(request);
  std::vector<size_t> places;
  PictureUrls urls = PictureUrlsOf(model);
  ReadInput(fields, request, urls, places);
  *request.mutable_sampling() = ReadSampling(fields);
  const auto max_tokens = ReadTokenLimit(fields, "max_output_tokens", 1);
  if (max_tokens.has_value()) request.mutable_limits()->set_max_tokens(*max_tokens);
  ReadVllmLimits(fields, *request.mutable_limits());
  const bool logprobs = ReadIncludesLogprobs(fields);
  const auto top_logprobs = fields.Integer("top_logprobs", 0, kMaxLogprobs);
  if (logprobs) request.set_logprobs(static_cast<uint32_t>(top_logprobs.value_or(0)));
  const bool stream = fields.Bool("stream").value_or(false);
  fields.String("user");
  const Json* metadata = fields.Object("metadata");
  if (!error.ok()) return error;

  const auto parsed = ParseChatWithUrls(request, model, urls);
  const ConstraintNames names = format.NamesIn(request, "parameters");
  if (!parsed.ok()) {
    return NameParsedConstraint(NamePrompt(AtPlace(parsed.status(), "input", places), "input"),
                                names);
  }
  ResponsesWriterOptions options{.stream = stream,
                                 .logprobs = logprobs,
                                 .ignored = ignored.names(),
                                 .top_logprobs = top_logprobs.value_or(0),
                                 .temperature = parsed->sampling.temperature,
                                 .top_p = parsed->sampling.top_p};
  if (max_tokens.value_or(kNoTokenLimit) != kNoTokenLimit) options.max_output_tokens = *max_tokens;
  if (const Json* instructions = fields.Find("instructions")) options.instructions = *instructions;
  if (metadata != nullptr) options.metadata = *metadata;
  options.calls = CallOptionsOf(request, model.tool_format());
  if (const Json* tools = fields.Find("tools")) options.tools = *tools;
  if (const Json* choice = fields.Find("tool_choice")) options.tool_choice = *choice;
  if (const Json* text = fields.Object("text")) {
    if (const Json* echo = JsonFields(*text, error).Find("format")) options.text_format = *echo;
  }
  options.parallel_tool_calls = !request.has_parallel_tool_calls() || request.parallel_tool_calls();
  ApiJob job;
  job.constraint_names = names;
  job.runs.push_back(*parsed);
  // A stream's last piece has them in output_text.done, content_part.done, output_item.done and
  // completed.
  job.logprobs = {.copies = logprobs ? (stream ? size_t{4} : size_t{1}) : size_t{0},
                  .fewer_in_stream = false};
  job.writer = MakeResponsesWriter(model, std::move(options));
  return job;
}

}  // namespace tandem::gateway
