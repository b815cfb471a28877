#include "tests/bench/request_clients.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/mutex.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/status.h"
#include "services/gateway/http/testing/http_test_client.h"

namespace tandem::bench {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kPatience = absl::Minutes(10);
constexpr uint32_t kFirstWord = 300;  // below are control tokens and bytes

std::string CompletionBody(const BenchRequest& request) {
  Json body = {{"prompt", request.prompt},
               {"max_tokens", request.tokens},
               {"ignore_eos", true},
               {"cache_prompt", request.cache_prompt},
               {"seed", request.seed},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}}};
  if (request.greedy) body["temperature"] = 0;
  if (!request.json_schema.empty()) body["json_schema"] = Json::parse(request.json_schema);
  return body.dump();
}

v1::GenerateRequest GenerateMessage(const BenchRequest& request) {
  v1::GenerateRequest message;
  for (const uint32_t id : request.prompt) message.mutable_tokens()->add_ids(id);
  message.mutable_limits()->set_max_tokens(request.tokens);
  message.mutable_limits()->set_ignore_eos(true);
  message.mutable_limits()->set_cache_prompt(request.cache_prompt);
  message.mutable_sampling()->set_seed(request.seed);
  if (request.greedy) message.mutable_sampling()->set_temperature(0);
  if (!request.json_schema.empty()) {
    message.mutable_constraint()->set_json_schema(request.json_schema);
  }
  return message;
}

absl::StatusOr<AnswerTimes> ReadCompletion(gateway::testing::HttpTestClient& http,
                                           const BenchRequest& request) {
  AnswerTimes times{.sent = absl::Now()};
  http.Request("POST", "/v1/completions", CompletionBody(request),
               "Content-Type: application/json\r\n");
  const auto head = http.ReadHead();
  if (head.status != 200 || head.Header("transfer-encoding") != "chunked") {
    return absl::InternalError(absl::StrFormat("/v1/completions was answered %d", head.status));
  }
  CompletionEvents events;
  while (true) {
    const auto chunk = http.ReadChunk();
    if (!chunk.has_value()) return absl::InternalError("the connection ended within an answer");
    if (chunk->empty()) break;
    TANDEM_RETURN_IF_ERROR(events.Append(*chunk, absl::Now()));
  }
  TANDEM_RETURN_IF_ERROR(events.Finish(times));
  return times;
}

BenchRequest RandomRequest(const Load& load, std::mt19937& random) {
  std::uniform_int_distribution<uint32_t> id(kFirstWord, load.vocab_size - 1);
  BenchRequest request{.tokens = load.tokens,
                       .greedy = load.greedy,
                       .seed = random(),
                       .cache_prompt = load.cache_prompts,
                       .json_schema = load.json_schema};
  while (request.prompt.size() < load.prompt) request.prompt.push_back(id(random));
  return request;
}

}  // namespace

absl::Status CompletionEvents::Append(std::string_view bytes, absl::Time now) {
  constexpr std::string_view kEnd = "\n\n";
  rest_.append(bytes);
  size_t begin = 0;
  for (size_t end; (end = rest_.find(kEnd, begin)) != std::string::npos;
       begin = end + kEnd.size()) {
    TANDEM_RETURN_IF_ERROR(Take(std::string_view(rest_).substr(begin, end - begin), now));
  }
  rest_.erase(0, begin);
  return absl::OkStatus();
}

absl::Status CompletionEvents::Take(std::string_view event, absl::Time now) {
  constexpr std::string_view kData = "data: ";
  if (!event.starts_with(kData)) return absl::OkStatus();  // a comment
  event.remove_prefix(kData.size());
  if (event == "[DONE]") {
    done_ = true;
    return absl::OkStatus();
  }
  const Json json = Json::parse(event, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.contains("error")) {
    return absl::InternalError(std::string(event));
  }
  for (const Json& choice : json.value("choices", Json::array())) {
    if (choice.value("text", "").empty()) continue;
    times_.first_token = std::min(times_.first_token, now);
    times_.last_token = now;
  }
  if (json.contains("usage") && json["usage"].is_object()) {
    times_.tokens = json["usage"].value("completion_tokens", 0u);
  }
  return absl::OkStatus();
}

absl::Status CompletionEvents::Finish(AnswerTimes& times) const {
  if (!done_) return absl::InternalError("the stream ended before the answer did");
  if (times_.first_token == absl::InfiniteFuture()) {
    return absl::InternalError("an answer without text");
  }
  const absl::Time sent = times.sent;
  times = times_;
  times.sent = sent;
  return absl::OkStatus();
}

Client MakeOpenAiClient(uint16_t port) {
  auto http = std::make_shared<gateway::testing::HttpTestClient>(port, kPatience);
  return [http](const BenchRequest& request) { return ReadCompletion(*http, request); };
}

Client MakeGrpcClient(GenerationStub& stub) {
  return [&stub](const BenchRequest& request) -> absl::StatusOr<AnswerTimes> {
    const v1::GenerateRequest message = GenerateMessage(request);
    grpc::ClientContext context;
    AnswerTimes times{.sent = absl::Now()};
    const auto reader = stub.Generate(&context, message);
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      if (response.tokens_size() == 0) continue;
      times.last_token = absl::Now();
      times.first_token = std::min(times.first_token, times.last_token);
      times.tokens += static_cast<uint32_t>(response.tokens_size());
    }
    TANDEM_RETURN_IF_ERROR(FromGrpcStatus(reader->Finish()));
    return times;
  };
}

absl::StatusOr<LoadResult> RunLoad(const Load& load, const std::function<Client()>& make) {
  std::vector<Client> clients;
  for (uint32_t c = 0; c < load.clients; ++c) clients.push_back(make());
  LoadResult result;
  Mutex mutex;
  absl::Status failed;
  std::vector<std::thread> threads;
  const absl::Time start = absl::Now();
  absl::Time end = start;
  for (uint32_t c = 0; c < load.clients; ++c) {
    threads.emplace_back([&, c] {
      std::mt19937 random(1000 * load.seed + c);
      for (uint32_t r = 0; r < load.rounds; ++r) {
        auto times = clients[c](RandomRequest(load, random));
        if (times.ok() && times->tokens != load.tokens) {
          times = absl::InternalError(
              absl::StrFormat("an answer of %d tokens, asked for %d", times->tokens, load.tokens));
        }
        MutexLock lock(mutex);
        if (!times.ok()) {
          failed.Update(times.status());
          return;
        }
        result.first_tokens.push_back(absl::ToDoubleSeconds(times->first_token - times->sent));
        result.per_token.push_back(absl::ToDoubleSeconds(times->last_token - times->first_token) /
                                   (load.tokens - 1));
        end = std::max(end, times->last_token);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  TANDEM_RETURN_IF_ERROR(failed);
  result.wall_seconds = absl::ToDoubleSeconds(end - start);
  std::sort(result.first_tokens.begin(), result.first_tokens.end());
  std::sort(result.per_token.begin(), result.per_token.end());
  return result;
}

double Quantile(const std::vector<double>& ascending, double q) {
  const double place = static_cast<double>(ascending.size() - 1) * q;
  return ascending[static_cast<size_t>(std::lround(place))];
}

}  // namespace tandem::bench
