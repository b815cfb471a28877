// Many more streams than run at once: what they cost the gateway, and when clients that are refused
// shall come back.  The toy model replaces the devices and runs a step at a fixed interval; the HTTP
// server, the handlers and the engine are the gateway's.
//
//   crowd_bench [active] [queued] [tokens] [step_us]
//
// Opens `active` + `queued` streams of /v1/chat/completions with one API key, and when they run and
// wait, asks again and again: each further request is refused.  Prints
//   - the most memory that this process had, the clients' and the gateway's together
//   - the time of a GET of /health, every 20 ms from the first stream to the last
//   - the time of a refusal, and its Retry-After beside when a request was taken
// Fails if one of them is over its bound, or a stream lacks a token.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/descriptors.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"
#include "services/gateway/http/api_keys.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/model/launcher.h"
#include "services/gateway/openai/openai_routes.h"
#include "services/gateway/rest/health_routes.h"
#include "tests/bench/stream_clients.h"

namespace tandem::gateway {
namespace {

using testing::HttpTestClient;
using testing::HttpTestResponse;

constexpr double kMostMemory = 1 << 30;  // bytes
constexpr absl::Duration kMostHealth = absl::Milliseconds(100);
constexpr absl::Duration kMostRefusal = absl::Milliseconds(50);
constexpr double kMostError = 0.3;  // of the time that a refusal tells
constexpr int kRefusals = 50;

constexpr char kKeyFile[] =
    "crowd sha256:5b4535bdd79ff9cd7894fcc2779dc3ee7c819a557555a7289dc286263be589e0";  // "crowd"
constexpr char kHeaders[] = "Authorization: Bearer crowd\r\n";

struct Crowd {
  uint32_t active = 256;
  uint32_t queued = 1000;
  uint32_t tokens = 400;
  absl::Duration step_time = absl::Milliseconds(25);
};

std::string Body(uint32_t tokens) {
  return absl::StrFormat(R"({"messages": [{"role": "user", "content": "hat"}], "temperature": 0, )"
                         R"("ignore_eos": true, "stream": true, "max_tokens": %d})",
                         tokens);
}

// A gateway over the toy model, with its HTTP port.
class Gateway {
 public:
  explicit Gateway(const Crowd& crowd)
      : limits_(Limits(crowd)),
        step_time_(crowd.step_time),
        launcher_([this](const Executor::Progress&) { return StartExecutor(); },
                  {.max_sequences = crowd.active,
                   .max_rows = limits_.max_rows,
                   .chunk_rows = 512,
                   .max_waiting = crowd.queued}) {
    HttpRouter router;
    TANDEM_CHECK(AddOpenAiRoutes(router, launcher_, {}).ok());
    TANDEM_CHECK(AddHealthRoutes(router, launcher_, /*api_keys=*/true).ok());
    auto keys = ApiKeys::Parse(kKeyFile);
    TANDEM_CHECK(keys.ok());
    auto http = HttpServer::Start({.listen = "127.0.0.1:0", .keys = *keys}, std::move(router));
    TANDEM_CHECK(http.ok());
    http_ = *std::move(http);
    auto ready = std::make_shared<testing::Gate>();
    launcher_.Begin([ready](bool) { ready->Open(); });
    ready->Wait();
  }
  ~Gateway() {
    launcher_.EndRequests();
    http_->Shutdown(absl::Seconds(5));
  }
  uint16_t port() const { return http_->port(); }
  v1::SchedulerStatus Load() const {
    v1::GetStatusResponse status;
    launcher_.FillStatus(status);
    return status.scheduler();
  }

 private:
  static StepLimits Limits(const Crowd& crowd) {
    StepLimits limits = testing::ToyLimits();
    limits.max_sequences = crowd.active;
    limits.max_rows = limits.max_outputs = 8 * crowd.active;
    limits.context_len = crowd.tokens + 64;
    limits.num_blocks[kGlobalGroup] = limits.num_blocks[kWindowGroup] =
        limits.max_sequences * (limits.context_len / limits.block_tokens + 2);
    limits.max_table_len = 2 * limits.num_blocks[kGlobalGroup];
    return limits;
  }
  absl::StatusOr<std::unique_ptr<Executor>> StartExecutor() {
    return std::make_unique<testing::FakeExecutor>(testing::FakeExecutorOptions{
        .limits = limits_, .on_step = [this](const StepBatch&) { return Step(); }});
  }
  absl::Status Step() {
    next_ = std::max(next_ + step_time_, absl::Now());
    absl::SleepFor(next_ - absl::Now());
    return absl::OkStatus();
  }

  const StepLimits limits_;
  const absl::Duration step_time_;
  absl::Time next_ = absl::Now();
  Launcher launcher_;
  std::unique_ptr<HttpServer> http_;
};

// Asks for /health until it is destroyed.
class Health {
 public:
  explicit Health(uint16_t port) : thread_([this, port] { Run(port); }) {}
  // The longest that an answer took.
  absl::Duration Stop() {
    stop_ = true;
    thread_.join();
    std::sort(times_.begin(), times_.end());
    std::printf("/health: %zu times, p50 %.1f p99 %.1f, at most %.1f ms\n", times_.size(),
                absl::ToDoubleMilliseconds(times_[times_.size() / 2]),
                absl::ToDoubleMilliseconds(times_[times_.size() * 99 / 100]),
                absl::ToDoubleMilliseconds(times_.back()));
    return times_.back();
  }

 private:
  void Run(uint16_t port) {
    do {
      const absl::Time begin = absl::Now();
      TANDEM_CHECK(HttpTestClient(port).Call("GET", "/health").status == 200);
      times_.push_back(absl::Now() - begin);
      absl::SleepFor(absl::Milliseconds(20));
    } while (!stop_);
  }

  std::atomic<bool> stop_{false};
  std::vector<absl::Duration> times_;
  std::thread thread_;  // last: runs on the above
};

// One request more; whether it was refused, and its Retry-After.
struct Asked {
  int status = 0;
  absl::Duration took;
  double retry_after = 0.0;  // seconds
};
Asked Ask(uint16_t port) {
  HttpTestClient client(port);
  const absl::Time begin = absl::Now();
  client.Request("POST", "/v1/chat/completions", Body(1), kHeaders);
  const HttpTestResponse response = client.ReadHead();
  Asked asked{.status = response.status, .took = absl::Now() - begin};
  asked.retry_after = std::atof(response.Header("retry-after").c_str());
  return asked;
}

// Refusals at once, and then again and again until one is taken.
bool Refused(uint16_t port) {
  absl::Duration slowest;
  const absl::Time begin = absl::Now();
  const Asked first = Ask(port);
  for (int i = 0; i < kRefusals; ++i) {
    const Asked asked = Ask(port);
    TANDEM_CHECK(asked.status == 429);
    slowest = std::max(slowest, asked.took);
  }
  // The one that is taken waits for its turn before its answer begins.
  absl::Time asked_at = absl::Now();
  while (Ask(port).status == 429) {
    absl::SleepFor(absl::Milliseconds(20));
    asked_at = absl::Now();
  }
  const double took = absl::ToDoubleSeconds(asked_at - begin);
  std::printf(
      "refusals: %d, at most %.1f ms; Retry-After %.0f s, and a request was taken after %.2f s\n",
      kRefusals, absl::ToDoubleMilliseconds(slowest), first.retry_after, took);
  return slowest < kMostRefusal && std::abs(first.retry_after - took) <= kMostError * took;
}

bool Measure(const Crowd& crowd) {
  Gateway gateway(crowd);
  Health health(gateway.port());
  const HttpStreamKind kind{.path = "/v1/chat/completions",
                            .headers = kHeaders,
                            .body = Body(crowd.tokens),
                            .token = "data: [DONE]"};
  const auto num_streams = static_cast<int>(crowd.active + crowd.queued);
  std::vector<ClientStream> streams;
  std::thread clients([&] { streams = RunHttpStreams(gateway.port(), kind, num_streams); });
  const absl::Time patience = absl::Now() + absl::Seconds(60);
  while (gateway.Load().running() < crowd.active || gateway.Load().waiting() < crowd.queued) {
    TANDEM_CHECK(absl::Now() < patience);
    absl::SleepFor(absl::Milliseconds(5));
  }
  std::printf("%d streams run and %d wait\n", gateway.Load().running(), gateway.Load().waiting());
  bool good = Refused(gateway.port());
  clients.join();
  good &= health.Stop() < kMostHealth;
  for (const ClientStream& stream : streams) good &= stream.tokens.size() == 1;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double memory = 1024.0 * static_cast<double>(usage.ru_maxrss);
  std::printf("memory: at most %.0f MiB\n", memory / (1 << 20));
  return good && memory < kMostMemory;
}

}  // namespace
}  // namespace tandem::gateway

int main(int argc, char** argv) {
  tandem::InitLogging("crowd_bench");
  TANDEM_CHECK(tandem::RaiseDescriptorLimit().ok());
  tandem::gateway::Crowd crowd;
  uint32_t* const counts[] = {&crowd.active, &crowd.queued, &crowd.tokens};
  uint32_t step_us = 25'000;
  for (int i = 1; i < argc; ++i) {
    const int value = std::atoi(argv[i]);
    if (value <= 0 || i > 4) {
      std::fprintf(stderr, "crowd_bench [ACTIVE [QUEUED [TOKENS [STEP_US]]]]\n");
      return 2;
    }
    (i < 4 ? *counts[i - 1] : step_us) = static_cast<uint32_t>(value);
  }
  crowd.step_time = absl::Microseconds(step_us);
  return tandem::gateway::Measure(crowd) ? 0 : 1;
}
