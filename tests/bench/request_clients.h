// Clients of a running cluster that each send one request after another, and when the tokens of
// the answers reach them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/tandem/api_client.h"

namespace tandem::bench {

struct BenchRequest {
  std::vector<uint32_t> prompt;  // token ids
  uint32_t tokens = 0;           // of the answer: its end by a token is passed over
  bool greedy = false;           // else as the model's own defaults have it
  uint64_t seed = 0;
  bool cache_prompt = false;
  std::string json_schema;  // of the answer, which must not end before `tokens`; empty: it is free
};

struct AnswerTimes {
  absl::Time sent;
  absl::Time first_token = absl::InfiniteFuture();
  absl::Time last_token = absl::InfinitePast();
  uint32_t tokens = 0;  // as the server counts them
};

// The events of one answer of /v1/completions.
class CompletionEvents {
 public:
  // Takes what came at `now`: events, or parts of them.  INTERNAL: one that is an error, or is no
  // JSON.
  absl::Status Append(std::string_view bytes, absl::Time now);
  // Fills all but `sent`.  INTERNAL: the stream ended before the answer did, or had no text.
  absl::Status Finish(AnswerTimes& times) const;

 private:
  absl::Status Take(std::string_view event, absl::Time now);

  std::string rest_;  // of an event that is not whole yet
  AnswerTimes times_;
  bool done_ = false;
};

// Sends a request and waits for the whole answer.  Single-thread.
using Client = std::function<absl::StatusOr<AnswerTimes>(const BenchRequest&)>;

// Of /v1/completions on 127.0.0.1:`port`, streamed, over one connection.
Client MakeOpenAiClient(uint16_t port);
// Of Generation.Generate.  `stub`: Borrowed; must outlive the client; may serve several.
Client MakeGrpcClient(GenerationStub& stub);

struct Load {
  uint32_t clients = 1;
  uint32_t rounds = 1;  // requests of each client
  uint32_t prompt = 128;
  uint32_t tokens = 64;  // 2 at least
  bool greedy = false;
  uint32_t vocab_size = 0;
  uint32_t seed = 0;           // of the prompts
  bool cache_prompts = false;  // nothing is found, unless they were sent before
  std::string json_schema;     // as in BenchRequest
};

struct LoadResult {
  double wall_seconds = 0;           // from the first request sent to the last token
  std::vector<double> first_tokens;  // seconds, of all requests, ascending
  std::vector<double> per_token;     // after the first, seconds, likewise
};

// All clients at once, each made by `make`, in a thread of its own.  The first error there is.
absl::StatusOr<LoadResult> RunLoad(const Load& load, const std::function<Client()>& make);

// The value below which the share `q` of `ascending` lies; not empty.
double Quantile(const std::vector<double>& ascending, double q);

}  // namespace tandem::bench
