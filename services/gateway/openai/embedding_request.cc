#include "services/gateway/openai/embedding_request.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/json_floats.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/prompt_list.h"

namespace tandem::gateway {
namespace {

// Appends the numbers as text.  As a JSON tree, thousands of numbers would each be a node.
std::string ToBody(const EmbedResult& result, const std::string& model, bool base64) {
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = 0; i < result.embeddings.size(); ++i) {
    const std::vector<float>& embedding = result.embeddings[i];
    if (i > 0) body += ',';
    body += absl::StrFormat(R"({"object":"embedding","index":%d,"embedding":)", i);
    body += base64 ? '"' + FloatsToBase64(embedding) + '"' : FloatsToJson(embedding);
    body += '}';
  }
  const uint32_t tokens = result.usage.prompt_tokens();
  body += R"(],"model":)" + DumpJson(model) + R"(,"usage":)";
  body += DumpJson({{"prompt_tokens", tokens}, {"total_tokens", tokens}});
  body += '}';
  return body;
}

}  // namespace

absl::StatusOr<EmbedJob> MakeEmbeddingJob(const Json& body, const ServedModel& model,
                                          const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  CheckModel(fields, model);
  v1::EmbedRequest request;
  for (v1::EmbedInput& input : ReadPrompts<v1::EmbedInput>(fields, "input", kMaxEmbedInputs)) {
    *request.add_inputs() = std::move(input);
  }
  const std::string format = fields.String("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.Fail("encoding_format", "invalid_value",
                absl::StrFormat("Invalid 'encoding_format': '%s', must be 'float' or 'base64'.",
                                ClientText(format, 40)));
  }
  const uint32_t hidden_dim = model.config().hidden_dim;
  fields.RefuseUnless(
      "dimensions", hidden_dim,
      absl::StrFormat("this server does not shorten embeddings, they have %d.", hidden_dim));
  fields.String("user");
  if (!error.ok()) return error;
  request.set_request_id(request_id);
  auto parsed = ParseEmbed(request, model);
  if (!parsed.ok()) {
    const std::string code = ErrorCode(parsed.status());
    return ParamError("input", code.empty() ? "invalid_value" : code,
                      NameEmbedInput(parsed.status(), "input", request.inputs_size()));
  }
  EmbedJob job;
  job.runs = *std::move(parsed);
  job.to_body = [name = model.info().name(), base64 = format == "base64"](
                    const EmbedResult& result) { return ToBody(result, name, base64); };
  return job;
}

}  // namespace tandem::gateway
