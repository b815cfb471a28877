// Measures what the path from a step's end to the client adds to a token: decision, text, the API's
// format, transport and the client's read, with many streams at once.  The toy model replaces the
// devices and runs a step at a fixed interval.
//
//   stream_bench [streams] [tokens] [step_us] [openai|lines|events|grpc|grpc-bare ...]
//
// openai: /v1/chat/completions; lines, events: /tandem/v1/chat in its two forms; grpc:
// Generation.Chat; grpc-bare: the same without the filter before gRPC.  Without one: all of them in
// turn.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/rpc/polling.h"
#include "services/common/rpc/server.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/engine/engine_observer.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"
#include "services/gateway/grpc/generation_service.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/model/launcher.h"
#include "services/gateway/openai/openai_routes.h"
#include "services/gateway/rest/rest_routes.h"
#include "tests/bench/stream_clients.h"

namespace tandem::gateway {
namespace {

// Every answer is this character again and again.  It is one token, so that no text waits for the
// rest of a character, and it occurs nowhere else in an answer's bytes: a client that reads several
// tokens in one message counts them all.
constexpr char kCharacter[] = "\u6771";

uint32_t CharacterToken() {
  const std::vector<std::string> pieces = testing::ToyVocabulary().pieces;
  const auto found = std::find(pieces.begin(), pieces.end(), kCharacter);
  TANDEM_CHECK(found != pieces.end());
  return static_cast<uint32_t>(found - pieces.begin());
}

// The earliest decision time of each token of each request: the end of its step.  A step gives a
// request a token if it computes the last token that the request has.  Steps with only a part of
// its prompt give it none: each HTTP client is a tenant, and tenants take turns.
class StepEnds final : public EngineObserver {
 public:
  void RequestAccepted(RequestNumber number, const EngineRequest& request,
                       absl::Time /*submitted*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    requests_[number] = {request.request_id, static_cast<uint32_t>(request.prompt.size())};
  }
  void StepEnded(const StepReport& report) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const RequestRows& rows : report.requests) {
      Request& request = requests_.at(rows.request);
      if (rows.first_position + rows.num_rows < request.num_tokens) continue;
      ++request.num_tokens;
      ends_[request.id].push_back(report.end);
    }
  }
  std::vector<absl::Time> Of(const std::string& request_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ends_[request_id];
  }

 private:
  struct Request {
    std::string id;
    uint32_t num_tokens = 0;  // of the prompt and the answer so far
  };
  std::mutex mutex_;
  std::map<RequestNumber, Request> requests_;
  std::map<std::string, std::vector<absl::Time>> ends_;  // by request id
};

constexpr char kChat[] = R"({"messages": [{"role": "user", "content": "hat"}], )";

HttpStreamKind OpenAiKind(int num_tokens) {
  return {
      .path = "/v1/chat/completions",
      .headers = "",
      .body = kChat + absl::StrFormat(R"("temperature": 0, "ignore_eos": true, "stream": true, )"
                                      R"("max_tokens": %d})",
                                      num_tokens),
      .token = kCharacter};
}

HttpStreamKind RestKind(int num_tokens, const std::string& accept) {
  return {.path = "/tandem/v1/chat",
          .headers = "Accept: " + accept + "\r\n",
          .body = kChat + absl::StrFormat(R"("sampling": {"temperature": 0}, "limits": )"
                                          R"({"ignoreEos": true, "maxTokens": %d}})",
                                          num_tokens),
          .token = R"("id":)"};
}

struct Load {
  int num_streams = 32;
  int num_tokens = 500;
  absl::Duration step_time = absl::Milliseconds(20);
};

// A gateway over the toy model, with its gRPC socket and its HTTP port.
class Gateway {
 public:
  Gateway(const Load& load, bool filtered) : limits_(Limits(load)), step_time_(load.step_time) {
    ServerOptions options{.listen = {"unix:" + folder_.path() + "/gateway.sock"}};
    if (filtered) options.edge.emplace();
    auto grpc = Server::Start(options, {{v1::Generation::service_full_name(), &service_}});
    TANDEM_CHECK(grpc.ok());
    grpc_ = *std::move(grpc);
    HttpRouter router;
    TANDEM_CHECK(AddOpenAiRoutes(router, launcher_, {}).ok());
    TANDEM_CHECK(AddRestRoutes(router, *v1::ChatRequest::descriptor()->file()->service(0),
                               service_.methods())
                     .ok());
    auto http = HttpServer::Start({.listen = "127.0.0.1:0"}, std::move(router));
    TANDEM_CHECK(http.ok());
    http_ = *std::move(http);
    auto ready = std::make_shared<testing::Gate>();
    launcher_.Begin([ready](bool) { ready->Open(); });
    ready->Wait();
  }
  ~Gateway() {
    launcher_.EndRequests();
    http_->Shutdown(absl::Seconds(5));
    grpc_->Shutdown(absl::Seconds(5));
  }
  std::string target() const { return grpc_->targets()[0]; }
  uint16_t port() const { return http_->port(); }
  StepEnds& ends() { return ends_; }

 private:
  static StepLimits Limits(const Load& load) {
    StepLimits limits = testing::ToyLimits();
    limits.max_sequences = static_cast<uint32_t>(load.num_streams);
    limits.max_rows = limits.max_outputs = 64 * limits.max_sequences;
    limits.context_len = static_cast<uint32_t>(load.num_tokens) + 64;
    limits.num_blocks[kGlobalGroup] = limits.num_blocks[kWindowGroup] =
        limits.max_sequences * (limits.context_len / limits.block_tokens + 1);
    limits.max_table_len = 2 * limits.num_blocks[kGlobalGroup];
    return limits;
  }
  absl::StatusOr<std::unique_ptr<Executor>> StartExecutor() {
    return std::make_unique<testing::FakeExecutor>(
        testing::FakeExecutorOptions{.limits = limits_,
                                     .queue_steps = false,
                                     .favourite = CharacterToken(),
                                     .on_step = [this](const StepBatch&) { return Step(); }});
  }
  absl::Status Step() {
    next_ = std::max(next_ + step_time_, absl::Now());
    absl::SleepFor(next_ - absl::Now());
    return absl::OkStatus();
  }

  const StepLimits limits_;
  const absl::Duration step_time_;
  absl::Time next_ = absl::Now();
  const TemporaryDirectory folder_;
  StepEnds ends_;
  Launcher launcher_{[this](const Executor::Progress&) { return StartExecutor(); },
                     {.max_sequences = limits_.max_sequences,
                      .max_rows = limits_.max_rows,
                      .chunk_rows = limits_.max_rows,
                      .max_waiting = limits_.max_sequences,
                      .observers = {&ends_}}};
  GenerationService service_{launcher_, {}};
  std::unique_ptr<Server> grpc_;
  std::unique_ptr<HttpServer> http_;
};

void Report(const std::string& kind, const Load& load, const std::vector<ClientStream>& streams,
            StepEnds& ends) {
  std::vector<double> us;
  for (const ClientStream& stream : streams) {
    const std::vector<absl::Time> decided = ends.Of(stream.request_id);
    TANDEM_CHECK(stream.tokens.size() == static_cast<size_t>(load.num_tokens));
    TANDEM_CHECK(decided.size() == stream.tokens.size());
    for (size_t i = 0; i < stream.tokens.size(); ++i) {
      us.push_back(absl::ToDoubleMicroseconds(stream.tokens[i] - decided[i]));
    }
  }
  std::sort(us.begin(), us.end());
  TANDEM_CHECK(us.front() >= 0);
  const auto quantile = [&us](double q) {
    return us[static_cast<size_t>(static_cast<double>(us.size() - 1) * q)];
  };
  std::printf(
      "%-9s %d streams, %zu tokens: us from the step's end to the client p50 %.0f p90 %.0f "
      "p99 %.0f p99.9 %.0f\n",
      kind.c_str(), load.num_streams, us.size(), quantile(0.5), quantile(0.9), quantile(0.99),
      quantile(0.999));
}

// False: there is no such kind.
bool Measure(const std::string& kind, const Load& load) {
  Gateway gateway(load, /*filtered=*/kind != "grpc-bare");
  std::vector<ClientStream> streams;
  if (kind == "grpc" || kind == "grpc-bare") {
    streams = RunGrpcStreams(gateway.target(), load.num_tokens, load.num_streams);
  } else if (kind == "openai") {
    streams = RunHttpStreams(gateway.port(), OpenAiKind(load.num_tokens), load.num_streams);
  } else if (kind == "lines" || kind == "events") {
    const char* accept = kind == "lines" ? "application/x-ndjson" : "text/event-stream";
    streams = RunHttpStreams(gateway.port(), RestKind(load.num_tokens, accept), load.num_streams);
  } else {
    return false;
  }
  Report(kind, load, streams, gateway.ends());
  return true;
}

}  // namespace
}  // namespace tandem::gateway

int main(int argc, char** argv) {
  tandem::PollForLatency();             // as in the gateway
  tandem::InitLogging("stream_bench");  // TANDEM_LOG=error leaves the figures alone
  tandem::gateway::Load load;
  for (int i = 1; i < std::min(argc, 4); ++i) {
    if (std::atoi(argv[i]) > 0) continue;
    std::fprintf(
        stderr,
        "stream_bench [STREAMS [TOKENS [STEP_US [openai|lines|events|grpc|grpc-bare]...]]]\n");
    return 2;
  }
  if (argc > 1) load.num_streams = std::atoi(argv[1]);
  if (argc > 2) load.num_tokens = std::atoi(argv[2]);
  if (argc > 3) load.step_time = absl::Microseconds(std::atoi(argv[3]));
  std::vector<std::string> kinds(argv + std::min(argc, 4), argv + argc);
  if (kinds.empty()) kinds = {"openai", "lines", "events", "grpc", "grpc-bare"};
  for (const std::string& kind : kinds) {
    if (tandem::gateway::Measure(kind, load)) continue;
    std::fprintf(stderr, "stream_bench: '%s' is none of openai, lines, events, grpc, grpc-bare\n",
                 kind.c_str());
    return 2;
  }
  return 0;
}
