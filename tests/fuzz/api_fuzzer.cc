// Bodies of the generating routes of OpenAI, Ollama and Anthropic, by the toy model: each is read by all of them.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "services/common/base/check.h"
#include "services/gateway/anthropic/anthropic_request.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/testing/toy_served_model.h"
#include "services/gateway/ollama/ollama_embed.h"
#include "services/gateway/ollama/ollama_request.h"
#include "services/gateway/openai/chat_request.h"
#include "services/gateway/openai/completion_request.h"
#include "services/gateway/openai/embedding_request.h"
#include "services/gateway/openai/responses_request.h"

namespace {

using namespace tandem::gateway;

bool IsComplete(const ApiJob& job) { return job.writer != nullptr; }
bool IsComplete(const EmbedJob& job) { return job.to_body != nullptr; }

// An error in a body is the client's: the status code must say so.
template <class Job>
void Check(const absl::StatusOr<Job>& job) {
  if (job.ok()) {
    TANDEM_CHECK(IsComplete(*job));
    for (const EngineRequest& run : job->runs) TANDEM_CHECK(!run.prompt.empty());
    return;
  }
  TANDEM_CHECK(absl::IsInvalidArgument(job.status()) || absl::IsNotFound(job.status()) ||
               absl::IsUnimplemented(job.status()));
  TANDEM_CHECK(!job.status().message().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto model = testing::MakeToyModel();
  const auto body = ParseJsonObject({reinterpret_cast<const char*>(data), size});
  if (!body.ok()) return 0;
  Check(MakeChatJob(*body, *model, "request"));
  Check(MakeCompletionJob(*body, *model, "request"));
  Check(MakeResponsesJob(*body, *model, "request"));
  Check(MakeMessagesJob(*body, *model, "request"));
  Check(MakeOllamaChatJob(*body, *model, "request"));
  Check(MakeOllamaGenerateJob(*body, *model, "request"));
  Check(MakeEmbeddingJob(*body, *model, "request"));
  Check(MakeOllamaEmbedJob(*body, *model, "request"));
  Check(MakeOllamaEmbeddingsJob(*body, *model, "request"));
  return 0;
}
