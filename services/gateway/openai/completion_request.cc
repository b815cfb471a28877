#include "services/gateway/openai/completion_request.h"

#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/openai/answer_format.h"
#include "services/gateway/openai/completion_writer.h"
#include "services/gateway/openai/openai_options.h"
#include "services/gateway/openai/prompt_list.h"

namespace tandem::gateway {
namespace {

constexpr uint32_t kDefaultMaxTokens = 16;  // OpenAI's

int64_t ReadNumChoices(JsonFields& fields, size_t num_prompts) {
  const int64_t n = fields.Integer("n", 1, kMaxChoices).value_or(1);
  const int64_t best_of = fields.Integer("best_of", 1, kMaxChoices).value_or(n);
  if (best_of != n)
    fields.Unsupported("best_of",
                       "this server does not choose among answers; send the same as 'n'.");
  if (n * static_cast<int64_t>(num_prompts) > kMaxChoices) {
    fields.Fail("n", "invalid_value",
                absl::StrFormat("Invalid 'n': %d choices of %d prompts, at most %d in one request.",
                                n, num_prompts, kMaxChoices));
  }
  return n;
}

// The text and the token that `echo` puts before the answer.
CompletionWriterOptions::Echo MakeEcho(const v1::GenerateRequest& request,
                                       const EngineRequest& parsed, const ServedModel& model) {
  CompletionWriterOptions::Echo echo;
  echo.text = request.has_text() ? request.text() : model.tokenizer().Decode(parsed.prompt);
  // The engine reports all prompt tokens except the first.  That one is no text if it was added.
  const bool first_is_bos = request.has_text() && model.bos().has_value();
  if (!first_is_bos) echo.first_token = parsed.prompt[0];
  return echo;
}

}  // namespace

absl::StatusOr<ApiJob> MakeCompletionJob(const Json& body, const ServedModel& model,
                                         const std::string& request_id) {
  absl::Status error;
  JsonFields fields(body, error);
  CheckModel(fields, model);
  auto prompts = ReadPrompts<v1::GenerateRequest>(fields, "prompt", kMaxChoices);
  const v1::SamplingParams sampling = ReadSampling(fields);
  v1::GenerationLimits limits;
  limits.set_max_tokens(ReadTokenLimit(fields, "max_tokens", 0).value_or(kDefaultMaxTokens));
  ReadStops(fields, limits);
  const auto logprobs = fields.Integer("logprobs", 0, kMaxLogprobs);
  const bool echo = fields.Bool("echo").value_or(false);
  const StreamOptions stream = ReadStreamOptions(fields);
  const int64_t num_choices = ReadNumChoices(fields, prompts.size());
  fields.String("user");
  fields.RefuseIfSet("suffix", "this server does not fill in the middle.");
  const ConstraintMember format = ReadAnswerFormat(fields);
  if (!error.ok()) return error;

  CompletionWriterOptions options{.stream = stream.stream,
                                  .include_usage = stream.include_usage,
                                  .logprobs = logprobs.has_value(),
                                  .ignore_eos = limits.ignore_eos(),
                                  .num_prompts = prompts.size(),
                                  .num_choices = static_cast<size_t>(num_choices)};
  ApiJob job;
  job.constraint_names.member = format.name();
  job.logprobs = {.copies = logprobs.has_value() && !stream.stream ? size_t{1} : size_t{0},
                  .member = "logprobs"};
  for (v1::GenerateRequest& request : prompts) {
    request.set_request_id(request_id);
    *request.mutable_sampling() = sampling;
    *request.mutable_limits() = limits;
    if (logprobs.has_value()) request.set_logprobs(static_cast<uint32_t>(*logprobs));
    request.set_prompt_logprobs(echo && logprobs.has_value());
    format.CopyTo(request);
    const auto parsed = ParseGenerate(request, model);
    if (!parsed.ok()) {
      return NameParsedConstraint(NamePrompt(parsed.status(), "prompt"), job.constraint_names);
    }
    for (EngineRequest& choice : MakeChoices(*parsed, num_choices)) {
      job.runs.push_back(std::move(choice));
    }
    if (echo) options.echoes.push_back(MakeEcho(request, *parsed, model));
  }
  job.writer = MakeCompletionWriter(model, std::move(options));
  return job;
}

}  // namespace tandem::gateway
