// Reads a streamed answer, and prints it and its statistics.
#pragma once

#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tandem/v1/generation.pb.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/printable.h"

namespace tandem {

struct Answer {
  std::string text;
  std::vector<v1::Token> tokens;
  v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  v1::Usage usage;
  std::string placement;
  std::string request_id;
};

using TextSink = std::function<void(std::string_view)>;

// Reads a Generate or Chat stream to its end and passes text to `sink` as it comes.  After an error
// `answer` has the part before it.  DATA_LOSS: the stream ended without a reason.
template <typename Response>
absl::Status ReadAnswer(grpc::ClientReader<Response>& reader, const TextSink& sink,
                        Answer& answer) {
  Response response;
  while (reader.Read(&response)) {
    if (!response.placement().empty()) answer.placement = OnOneLine(response.placement());
    if (!response.request_id().empty()) answer.request_id = OnOneLine(response.request_id());
    if (!response.text().empty()) sink(response.text());
    answer.text += response.text();
    answer.tokens.insert(answer.tokens.end(), response.tokens().begin(), response.tokens().end());
    if (response.has_usage()) {
      answer.usage = response.usage();
      MakePrintable(answer.usage);
    }
    if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
      answer.finish_reason = response.finish_reason();
    }
  }
  const absl::Status status = FromGateway(reader.Finish());
  if (status.ok() && answer.finish_reason == v1::FINISH_REASON_UNSPECIFIED) {
    return absl::DataLossError("the gateway ended the answer without a reason");
  }
  return status;
}

// Writes text to standard output at once.  On a terminal it replaces control characters other than
// line feed and tab, so that a model cannot send escape sequences.
void PrintText(std::string_view text);

// "8 tokens after 16, 34.5 tokens/s, first token after 0.120 s, seed 7\nplacement: ..." and the
// device times; unknown values are left out.
std::string DescribeAnswer(const Answer& answer);

}  // namespace tandem
