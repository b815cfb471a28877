// Measures the HTTP server: the time from a handler's Write of a token to the client's read, with
// many streams at once, and the memory of an idle connection.
//
//   http_bench [streams] [tokens] [token_us]
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/clock.h"
#include "services/common/base/logging.h"
#include "services/gateway/http/http_server.h"
#include "services/gateway/http/testing/http_test_client.h"

namespace tandem::gateway {
namespace {

using testing::HttpTestClient;

constexpr int kNumIdle = 1000;

// Streams events that hold the time of their writing, all at once and `period` apart, as a batched
// model does.
class TokenSource {
 public:
  TokenSource(int num_tokens, absl::Duration period) : num_tokens_(num_tokens), period_(period) {}

  HttpHandler Handler() {
    return [this](const HttpRequest&, std::shared_ptr<HttpResponder> responder) {
      responder->BeginStream({});
      const std::lock_guard<std::mutex> lock(mutex_);
      responders_.push_back(std::move(responder));
    };
  }
  size_t num_streams() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return responders_.size();
  }
  void Run() {
    absl::Time next = absl::Now();
    for (int i = 0; i < num_tokens_; ++i) {
      for (const auto& responder : responders_) {
        TANDEM_CHECK(responder->Write(absl::StrFormat("data: {\"t\":%d}\n\n", NowNanos())));
      }
      next += period_;
      absl::SleepFor(next - absl::Now());
    }
    for (const auto& responder : responders_) responder->End();
    responders_.clear();
  }

 private:
  const int num_tokens_;
  const absl::Duration period_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<HttpResponder>> responders_;
};

// Reads every stream to its end; the microseconds each event was on its way.
std::vector<double> ReadAll(const std::vector<HttpTestClient>& clients) {
  std::vector<pollfd> polled;
  for (const HttpTestClient& client : clients) polled.push_back({client.fd(), POLLIN, 0});
  std::vector<double> latencies;
  size_t num_open = polled.size();
  while (num_open > 0) {
    ::poll(polled.data(), polled.size(), -1);
    for (pollfd& p : polled) {
      if ((p.revents & (POLLIN | POLLHUP)) == 0) continue;
      char bytes[8192];
      const ssize_t got = ::recv(p.fd, bytes, sizeof(bytes) - 1, 0);
      const int64_t now = NowNanos();
      if (got <= 0) {
        p.fd = -1;
        --num_open;
        continue;
      }
      bytes[got] = 0;
      for (const char* at = bytes; (at = std::strstr(at, "{\"t\":")) != nullptr; at += 5) {
        latencies.push_back(static_cast<double>(now - std::atoll(at + 5)) * 1e-3);
      }
    }
  }
  return latencies;
}

double ResidentMb() {
  std::ifstream statm("/proc/self/statm");
  double pages = 0.0;
  statm >> pages >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) * 1e-6;
}

std::unique_ptr<HttpServer> Start(HttpRouter router) {
  auto server = HttpServer::Start({.listen = "127.0.0.1:0"}, std::move(router));
  TANDEM_CHECK(server.ok());
  return *std::move(server);
}

void MeasureStreams(int num_streams, int num_tokens, absl::Duration period) {
  TokenSource source(num_tokens, period);
  HttpRouter router;
  TANDEM_CHECK(router.Add({"GET", "/stream", source.Handler()}).ok());
  const auto server = Start(std::move(router));
  std::vector<HttpTestClient> clients;
  for (int i = 0; i < num_streams; ++i) {
    clients.emplace_back(server->port());
    clients.back().Request("GET", "/stream", "", "Connection: close\r\n");
  }
  while (source.num_streams() < clients.size()) absl::SleepFor(absl::Milliseconds(1));
  std::thread writer([&source] { source.Run(); });
  std::vector<double> us = ReadAll(clients);
  writer.join();
  std::sort(us.begin(), us.end());
  const auto quantile = [&us](double q) {
    return us[static_cast<size_t>(static_cast<double>(us.size() - 1) * q)];
  };
  std::printf("%d streams, %zu tokens: us on the way p50 %.0f p90 %.0f p99 %.0f p99.9 %.0f\n",
              num_streams, us.size(), quantile(0.5), quantile(0.9), quantile(0.99),
              quantile(0.999));
}

void MeasureIdle() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  HttpRouter router;
  TANDEM_CHECK(router
                   .Add({"POST", "/",
                         [](const HttpRequest& request, const auto& responder) {
                           responder->Send({.body = request.body});
                         }})
                   .ok());
  const auto server = Start(std::move(router));
  const double before = ResidentMb();
  std::vector<HttpTestClient> clients;
  const std::string body(4000, 'x');
  for (int i = 0; i < kNumIdle; ++i) {
    clients.emplace_back(server->port());
    TANDEM_CHECK(clients.back().Call("POST", "/", body).status == 200);
  }
  const double after = ResidentMb();
  std::printf("%d idle connections: %.1f MB (both ends' user memory)\n", kNumIdle, after - before);
}

}  // namespace
}  // namespace tandem::gateway

int main(int argc, char** argv) {
  tandem::InitLogging("http_bench");  // TANDEM_LOG=error leaves the figures alone
  const int num_streams = argc > 1 ? std::atoi(argv[1]) : 32;
  const int num_tokens = argc > 2 ? std::atoi(argv[2]) : 500;
  const int token_us = argc > 3 ? std::atoi(argv[3]) : 10000;
  tandem::gateway::MeasureStreams(num_streams, num_tokens, absl::Microseconds(token_us));
  tandem::gateway::MeasureIdle();
  return 0;
}
