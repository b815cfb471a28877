// The collector of traces: its address as --otlp has it, on the first line, and whatever it answers
// to an export.  Every span is counted once, as exported or as dropped.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "services/common/base/check.h"
#include "services/common/base/mutex.h"
#include "services/common/base/unique_fd.h"
#include "services/gateway/trace/http_poster.h"
#include "services/gateway/trace/span_exporter.h"

namespace {

using namespace tandem;
using namespace tandem::gateway;

struct OneSpan final : SpanSource {
  size_t num_spans() const override { return 3; }
  void AppendSpans(otlp::v1::ScopeSpans& spans) const override {
    for (int i = 0; i < 3; ++i) spans.add_spans()->set_name("step");
  }
};

// Answers every connection with the same bytes, and closes.
class Collector {
 public:
  Collector() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    TANDEM_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
    TANDEM_CHECK(::listen(listener_.get(), 16) == 0);
    TANDEM_CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) ==
                 0);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    std::thread([this] { Run(); }).detach();
  }
  const std::string& url() const { return url_; }
  void SetAnswer(std::string_view answer) {
    MutexLock lock(mutex_);
    answer_ = answer;
  }

 private:
  void Run() {
    char request[4096];
    while (true) {
      const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer.valid()) continue;
      // One read is the whole request: it is small, and sent at once.
      if (::recv(peer.get(), request, sizeof(request), 0) <= 0) continue;
      std::string answer;
      {
        MutexLock lock(mutex_);
        answer = answer_;
      }
      (void)::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      ::shutdown(peer.get(), SHUT_WR);
      while (::recv(peer.get(), request, sizeof(request), 0) > 0) {
      }
    }
  }

  const UniqueFd listener_;
  std::string url_;
  Mutex mutex_;
  std::string answer_ ABSL_GUARDED_BY(mutex_);
};

void FuzzAddress(const std::string& url) {
  const auto parsed = ParseCollectorUrl(url);
  if (!parsed.ok()) return;
  TANDEM_CHECK(parsed->starts_with("http://") || parsed->starts_with("https://"));
  // It goes into a request's lines: nothing may break out of them.
  for (const char c : *parsed) TANDEM_CHECK(c > ' ' && c <= '~' && c != '@');
  TANDEM_CHECK(ParseCollectorUrl(*parsed).value() == *parsed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const collector = new Collector();
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t line = all.find('\n');
  FuzzAddress(std::string(all.substr(0, line)));
  if (line == std::string_view::npos) return 0;
  collector->SetAnswer(all.substr(line + 1));
  auto exporter = SpanExporter::Start({.url = collector->url(),
                                       .max_batch_spans = 3,  // sent at once
                                       .timeout = absl::Seconds(5),
                                       .min_pause = absl::ZeroDuration(),
                                       .max_pause = absl::ZeroDuration(),
                                       .max_batch_age = absl::ZeroDuration(),
                                       .flush = absl::Seconds(10)});
  TANDEM_CHECK(exporter.ok());
  (*exporter)->Add(std::make_shared<OneSpan>());
  (*exporter)->Flush();
  const SpanCounts counts = (*exporter)->counts();
  uint64_t dropped = 0;
  for (const uint64_t of_reason : counts.dropped) dropped += of_reason;
  TANDEM_CHECK(counts.queued == 0 && counts.exported + dropped == 3);
  return 0;
}
