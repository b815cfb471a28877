#include "services/gateway/anthropic/anthropic_request.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/anthropic/anthropic_messages.h"
#include "services/gateway/anthropic/anthropic_writer.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/constraint_member.h"
#include "services/gateway/api/image_members.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/tool_calls/tool_messages.h"

namespace tandem::gateway {
namespace {

absl::StatusOr<EngineRequest> ParseMessages(const v1::ChatRequest& request,
                                            const std::vector<size_t>& places,
                                            const PictureUrls& urls, const ServedModel& model) {
  auto parsed = ParseChatWithUrls(request, model, urls);
  if (!parsed.ok()) {
    return NamePrompt(AtPlace(parsed.status(), "messages", places), "messages");
  }
  return parsed;
}

// What changes the answer and is not done here.
void RefuseOthers(JsonFields& fields) {
  fields.RefuseIfSet("mcp_servers", "this server does not run tools itself.");
  fields.RefuseIfSet("container", "this server does not run tools itself.");
}

// The member `name`: {"type": "json_schema", "schema": {...}}.
void ReadFormat(JsonFields& outer, const char* name, ConstraintMember& member) {
  const Json* format = outer.Object(name);
  if (format == nullptr || format->empty()) return;
  JsonFields fields(*format, outer.error(), outer.PathOf(name) + ".");
  if (!fields.Has("type")) return fields.Missing("type");
  fields.RefuseUnless("type", "json_schema", "this server knows \"json_schema\" alone.");
  if (!fields.Has("schema")) return fields.Missing("schema");
  ReadSchema(fields, "schema", /*or_text=*/false, member);
}

// output_config.format, and output_format, its older place.
ConstraintMember ReadOutputFormat(JsonFields& fields) {
  ConstraintMember member;
  ReadFormat(fields, "output_format", member);
  if (const Json* config = fields.Object("output_config")) {
    JsonFields inner(*config, fields.error(), "output_config.");
    ReadFormat(inner, "format", member);
  }
  return member;
}

void ReadStopSequences(JsonFields& fields, v1::GenerationLimits& limits) {
  const Json* stops = fields.Array("stop_sequences");
  if (stops == nullptr) return;
  for (std::string& stop : fields.Strings("stop_sequences", kMaxStops)) {
    if (stop.empty() || stop.size() > kMaxStopBytes) {
      return fields.Fail("stop_sequences", "invalid_value",
                         absl::StrFormat("stop_sequences: a text of %d bytes, it must have 1 to %d",
                                         stop.size(), kMaxStopBytes));
    }
    limits.add_stop(std::move(stop));
  }
}

}  // namespace

absl::StatusOr<ApiJob> MakeMessagesJob(const Json& body, const ServedModel& model,
                                       const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  CheckModel(fields, model);
  v1::ChatRequest request;
  request.set_request_id(request_id);
  std::vector<size_t> places;
  PictureUrls urls = PictureUrlsOf(model);
  ReadConversation(fields, urls, request, places);
  *request.mutable_sampling() = ReadSampling(fields);
  const auto max_tokens = ReadTokenLimit(fields, "max_tokens", 1);
  if (!max_tokens.has_value()) fields.Missing("max_tokens");
  request.mutable_limits()->set_max_tokens(max_tokens.value_or(1));
  ReadStopSequences(fields, *request.mutable_limits());
  const bool stream = fields.Bool("stream").value_or(false);
  RefuseOthers(fields);
  const ConstraintMember format = ReadOutputFormat(fields);
  format.CopyTo(request);
  if (!error.ok()) return error;

  auto parsed = ParseMessages(request, places, urls, model);
  const ConstraintNames names = format.NamesIn(request, "input_schema");
  if (!parsed.ok()) return NameParsedConstraint(parsed.status(), names);
  AnthropicWriterOptions options{.stream = stream,
                                 .prompt_tokens = parsed->prompt.size(),
                                 .stops = parsed->stops,
                                 .calls = CallOptionsOf(request, model.tool_format())};
  options.calls.id_prefix = "toolu_";
  ApiJob job;
  job.runs.push_back(*std::move(parsed));
  job.constraint_names = names;
  job.writer = MakeAnthropicWriter(model, std::move(options));
  return job;
}

absl::StatusOr<size_t> CountMessageTokens(const Json& body, const ServedModel& model) {
  absl::Status error;
  JsonFields fields(body, error);
  CheckModel(fields, model);
  v1::ChatRequest request;
  std::vector<size_t> places;
  PictureUrls urls = PictureUrlsOf(model);
  ReadConversation(fields, urls, request, places);
  if (!error.ok()) return error;
  TANDEM_ASSIGN_OR_RETURN(const EngineRequest parsed, ParseMessages(request, places, urls, model));
  return parsed.prompt.size();
}

}  // namespace tandem::gateway
