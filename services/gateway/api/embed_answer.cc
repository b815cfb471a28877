#include "services/gateway/api/embed_answer.h"

#include <bit>
#include <utility>

#include "absl/strings/escaping.h"
#include "services/gateway/model/client_limits.h"
#include "services/gateway/model/client_status.h"

namespace tandem::gateway {

static_assert(std::endian::native == std::endian::little);

void EmbedJob::SetOrigin(Api api, const RequestTrace& trace) {
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].api = api;
    runs[i].trace = i == 0 ? trace : trace.Sibling();
  }
}

void StartEmbedding(const ServedModel& model, EmbedJob job, std::shared_ptr<HttpClient> client,
                    const std::shared_ptr<HttpResponder>& responder) {
  const auto send = [responder](absl::StatusOr<std::string> body) {
    if (body.ok()) {
      responder->Send({.body = *std::move(body)});
    } else {
      responder->SendStatus(ToClientError(body.status()));
    }
  };
  if (job.runs.empty()) return send(job.to_body({}));
  const auto run =
      ReserveEmbedding(client, model, std::move(job.runs),
                       [send, to_body = std::move(job.to_body)](const EmbedResult& result) {
                         send(result.status.ok() ? to_body(result) : result.status);
                       });
  if (!run.ok()) return send(run.status());
  // The responder destroys both when the answer is complete or the client has gone.
  responder->SetCallbacks([] {}, [run = *run] { run->Cancel(); });
  (*run)->Start();
}

std::string NameEmbedInput(const absl::Status& status, std::string_view member, size_t num_inputs) {
  std::string message(status.message());
  const auto replace = [&message](const std::string& from, const std::string& to) {
    if (const size_t at = message.find(from); at != std::string::npos) {
      message.replace(at, from.size(), to);
    }
  };
  replace("].text:", "]:");
  replace("].tokens[", "][");
  replace(num_inputs == 1 ? "inputs[0]" : "inputs", std::string(member));
  return message;
}

std::string FloatsToBase64(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return absl::Base64Escape({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace tandem::gateway
