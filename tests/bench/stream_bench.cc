// What the way from a step's end to the client's hands adds to a token: the decision, its text, the
// API's JSON, HTTP and the client's read, with many streams of /v1/chat/completions at once.  The
// toy model stands for the devices, a step every so often.
//
//   stream_bench [streams] [tokens] [step_us]
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/gateway/engine/engine_observer.h"
#include "services/gateway/engine/testing/fake_executor.h"
#include "services/gateway/engine/testing/gate.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"
#include "services/gateway/openai/openai_routes.h"
#include "services/gateway/service/launcher.h"

namespace tandem::gateway {
namespace {

using testing::HttpTestClient;

// Every token: the toy model's own answers are mostly bytes of halves of characters, whose text has
// to wait for the rest.
constexpr uint32_t kLetter = testing::kToyFirstByte + 257;

// When each token of each request could be decided: the ends of the steps it had rows in.  Prompts
// fit one step and no step is queued, so that every step with a request leads to a token of it.
class StepEnds final : public EngineObserver {
 public:
  void RequestAccepted(RequestNumber number, const EngineRequest& request,
                       absl::Time /*submitted*/) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    ids_[number] = request.request_id;
  }
  void StepEnded(const StepReport& report) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const RequestRows& rows : report.requests) ends_[ids_[rows.request]].push_back(report.end);
  }
  std::vector<absl::Time> Of(const std::string& request_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return ends_[request_id];
  }

 private:
  std::mutex mutex_;
  std::map<RequestNumber, std::string> ids_;
  std::map<std::string, std::vector<absl::Time>> ends_;  // by request id
};

// One stream as its client sees it.
struct Stream {
  explicit Stream(uint16_t port) : client(port) {}
  HttpTestClient client;
  std::string bytes;               // head included
  std::vector<absl::Time> tokens;  // when each was read

  std::string RequestId() const {
    constexpr std::string_view kName = "\r\nX-Request-Id: ";
    const size_t at = bytes.find(kName);
    TANDEM_CHECK(at != std::string::npos);
    return bytes.substr(at + kName.size(), bytes.find('\r', at + 2) - at - kName.size());
  }
  // Takes what has come; false at the stream's end.
  bool Read() {
    constexpr std::string_view kToken = R"("content":"a")";
    char buffer[8192];
    const ssize_t got = ::recv(client.fd(), buffer, sizeof(buffer), 0);
    const absl::Time now = absl::Now();
    if (got <= 0) return false;
    size_t at = bytes.size() - std::min(bytes.size(), kToken.size() - 1);
    bytes.append(buffer, static_cast<size_t>(got));
    for (; (at = bytes.find(kToken, at)) != std::string::npos; ++at) tokens.push_back(now);
    return true;
  }
};

// Reads every stream to its end, on one thread.
void ReadAll(std::vector<Stream>& streams) {
  std::vector<pollfd> polled;
  polled.reserve(streams.size());
  for (const Stream& stream : streams) polled.push_back({stream.client.fd(), POLLIN, 0});
  for (size_t num_open = streams.size(); num_open > 0;) {
    ::poll(polled.data(), polled.size(), -1);
    for (size_t i = 0; i < polled.size(); ++i) {
      if ((polled[i].revents & (POLLIN | POLLHUP)) == 0 || streams[i].Read()) continue;
      polled[i].fd = -1;
      --num_open;
    }
  }
}

void Measure(int num_streams, int num_tokens, absl::Duration step_time) {
  StepLimits limits = testing::ToyLimits();
  const auto sequences = static_cast<uint32_t>(num_streams);
  limits.max_sequences = sequences;
  limits.max_rows = limits.max_outputs = 64 * sequences;
  limits.context_len = static_cast<uint32_t>(num_tokens) + 64;
  limits.num_blocks[kGlobalGroup] = limits.num_blocks[kWindowGroup] =
      sequences * (limits.context_len / limits.block_tokens + 1);
  limits.max_table_len = 2 * limits.num_blocks[kGlobalGroup];
  absl::Time next = absl::Now();
  const auto on_step = [&next, step_time](const StepBatch&) {
    next = std::max(next + step_time, absl::Now());
    absl::SleepFor(next - absl::Now());
    return absl::OkStatus();
  };
  StepEnds ends;
  Launcher launcher(
      [&](const Executor::Progress&) -> absl::StatusOr<std::unique_ptr<Executor>> {
        return std::make_unique<testing::FakeExecutor>(testing::FakeExecutorOptions{
            .limits = limits, .queue_steps = false, .favourite = kLetter, .on_step = on_step});
      },
      {.max_sequences = sequences,
       .max_rows = limits.max_rows,
       .chunk_rows = limits.max_rows,
       .max_waiting = sequences,
       .observers = {&ends}});
  HttpRouter router;
  TANDEM_CHECK(AddOpenAiRoutes(router, launcher, {}).ok());
  auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, std::move(router));
  TANDEM_CHECK(server.ok());
  auto ready = std::make_shared<testing::Gate>();
  launcher.Begin([ready](bool) { ready->Open(); });
  ready->Wait();

  std::vector<Stream> streams;
  for (uint32_t i = 0; i < sequences; ++i) {
    streams.emplace_back((*server)->port())
        .client.Request("POST", "/v1/chat/completions",
                        absl::StrFormat(R"({"messages": [{"role": "user", "content": "hat"}], )"
                                        R"("temperature": 0, "ignore_eos": true, "stream": true, )"
                                        R"("max_tokens": %d})",
                                        num_tokens),
                        "Connection: close\r\n");
  }
  ReadAll(streams);

  std::vector<double> us;
  for (const Stream& stream : streams) {
    const std::vector<absl::Time> decided = ends.Of(stream.RequestId());
    TANDEM_CHECK(stream.tokens.size() == static_cast<size_t>(num_tokens));
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
      "%d streams, %zu tokens: us from the step's end to the client p50 %.0f p90 %.0f "
      "p99 %.0f p99.9 %.0f\n",
      num_streams, us.size(), quantile(0.5), quantile(0.9), quantile(0.99), quantile(0.999));
  launcher.EndRequests();
  (*server)->Shutdown(absl::Seconds(5));
}

}  // namespace
}  // namespace tandem::gateway

int main(int argc, char** argv) {
  tandem::InitLogging("stream_bench");  // TANDEM_LOG=error leaves the figures alone
  const int num_streams = argc > 1 ? std::atoi(argv[1]) : 32;
  const int num_tokens = argc > 2 ? std::atoi(argv[2]) : 500;
  const int step_us = argc > 3 ? std::atoi(argv[3]) : 20000;
  tandem::gateway::Measure(num_streams, num_tokens, absl::Microseconds(step_us));
  return 0;
}
