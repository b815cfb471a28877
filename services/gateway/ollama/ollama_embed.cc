#include "services/gateway/ollama/ollama_embed.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/json_floats.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/ollama/ollama_request.h"

namespace tandem::gateway {
namespace {

std::string ManyToBody(const EmbedResult& result, const std::string& model) {
  const auto nanoseconds = [](double seconds) { return std::llround(seconds * 1e9); };
  std::string body = R"({"model":)" + DumpJson(model) + R"(,"embeddings":[)";
  for (size_t i = 0; i < result.embeddings.size(); ++i) {
    if (i > 0) body += ',';
    body += FloatsToJson(result.embeddings[i]);
  }
  const v1::Usage& usage = result.usage;
  body += absl::StrFormat(R"(],"total_duration":%d,"load_duration":%d,"prompt_eval_count":%d})",
                          nanoseconds(usage.total_seconds()), nanoseconds(usage.queue_seconds()),
                          usage.prompt_tokens());
  return body;
}

std::string OneToBody(const EmbedResult& result) {
  const auto& all = result.embeddings;
  return R"({"embedding":)" + (all.empty() ? "[]" : FloatsToJson(all[0])) + "}";
}

// The runs of `texts`.  Errors name `member`.
absl::StatusOr<std::vector<EngineRequest>> MakeRuns(const std::vector<std::string>& texts,
                                                    const ServedModel& model,
                                                    const std::string& request_id,
                                                    const std::string& member) {
  if (texts.empty()) return std::vector<EngineRequest>();
  v1::EmbedRequest request;
  request.set_request_id(request_id);
  for (const std::string& text : texts) request.add_inputs()->set_text(text);
  auto parsed = ParseEmbed(request, model);
  if (parsed.ok()) return parsed;
  return absl::Status(parsed.status().code(),
                      NameEmbedInput(parsed.status(), member, texts.size()));
}

}  // namespace

absl::StatusOr<EmbedJob> MakeOllamaEmbedJob(const Json& body, const ServedModel& model,
                                            const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  const std::string name = fields.String("model").value_or("");
  std::vector<std::string> texts = fields.Strings("input", kMaxEmbedInputs);
  // A single empty text counts as no text.  An empty text among others is an error.
  if (texts.size() == 1 && texts[0].empty()) texts.clear();
  const uint32_t hidden_dim = model.config().hidden_dim;
  fields.RefuseUnless(
      "dimensions", hidden_dim,
      absl::StrFormat("this server does not shorten embeddings, they have %d.", hidden_dim));
  fields.Bool("truncate");  // no effect: an input that is too long is always refused
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(CheckOllamaName(name, model));
  EmbedJob job;
  TANDEM_ASSIGN_OR_RETURN(job.runs, MakeRuns(texts, model, request_id, "input"));
  job.to_body = [name](const EmbedResult& result) { return ManyToBody(result, name); };
  return job;
}

absl::StatusOr<EmbedJob> MakeOllamaEmbeddingsJob(const Json& body, const ServedModel& model,
                                                 const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  const std::string name = fields.String("model").value_or("");
  const std::string prompt = fields.String("prompt").value_or("");
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(CheckOllamaName(name, model));
  std::vector<std::string> texts;
  if (!prompt.empty()) texts.push_back(prompt);
  EmbedJob job;
  TANDEM_ASSIGN_OR_RETURN(job.runs, MakeRuns(texts, model, request_id, "prompt"));
  job.to_body = OneToBody;
  return job;
}

}  // namespace tandem::gateway
