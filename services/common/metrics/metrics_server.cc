#include "services/common/metrics/metrics_server.h"

#include <CivetServer.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"
#include "services/common/metrics/process_metrics.h"

namespace tandem {
namespace {

// A connection holds a thread until its request is there: sixteen of them, for a second each.
constexpr char kRequestTimeoutMs[] = "1000";

absl::Status CheckAddress(const std::string& address, bool allow_remote) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrFormat("metrics address '%s': HOST:PORT is expected", address));
  }
  const std::string host = address.substr(0, colon);
  if (!allow_remote && host != "[::1]" && !host.starts_with("127.")) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "metrics address '%s' is not loopback: anyone who reaches it could read it; "
        "--metrics-remote allows that",
        address));
  }
  return absl::OkStatus();
}

}  // namespace

bool IsNameOfThisMachine(std::string_view host) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    in6_addr six{};
    return end != std::string_view::npos &&
           ::inet_pton(AF_INET6, std::string(host.substr(1, end - 1)).c_str(), &six) == 1;
  }
  const std::string name(host.substr(0, host.find(':')));
  in_addr four{};
  return name == "localhost" || name.ends_with(".localhost") ||
         ::inet_pton(AF_INET, name.c_str(), &four) == 1;
}

class MetricsServer::Page final : public CivetHandler {
 public:
  Page(MetricSource source, bool check_host)
      : source_(std::move(source)), check_host_(check_host) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const char* host = mg_get_header(connection, "Host");
    if (check_host_ && host != nullptr && !IsNameOfThisMachine(host)) {
      mg_send_http_error(connection, 403, "%s",
                         "this page does not go by that name; ask for 127.0.0.1 or localhost\n");
      return true;
    }
    const std::string text = MetricsText(source_);
    mg_send_http_ok(connection, kMetricsContentType, static_cast<long long>(text.size()));
    mg_write(connection, text.data(), text.size());
    return true;
  }

 private:
  const MetricSource source_;
  const bool check_host_;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    bool allow_remote,
                                                                    MetricSource source) {
  if (const absl::Status status = CheckAddress(address, allow_remote); !status.ok()) return status;
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  server->page_ = std::make_unique<Page>(std::move(source), !allow_remote);
  server->host_ = address.substr(0, address.rfind(':'));
  const std::vector<std::string> options = {
      "listening_ports", address, "num_threads", "16", "request_timeout_ms", kRequestTimeoutMs};
  try {
    server->server_ = std::make_unique<CivetServer>(options);
  } catch (const CivetException&) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "metrics address '%s' cannot be listened on: is the port in use?", address));
  }
  server->server_->addHandler("/metrics$", server->page_.get());
  return server;
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::StartIf(const std::string& address,
                                                                      bool allow_remote,
                                                                      MetricSource source) {
  if (address.empty()) return nullptr;
  return Start(address, allow_remote, std::move(source));
}

namespace {

// Connects to "HOST:PORT" on this machine, and lets go.
void Knock(const std::string& host, int port) {
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(static_cast<uint16_t>(port));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = four.sin_port;
  six.sin6_addr = in6addr_loopback;
  const bool is_six = host.starts_with('[');
  if (::inet_pton(AF_INET, host.c_str(), &four.sin_addr) != 1 ||
      four.sin_addr.s_addr == htonl(INADDR_ANY)) {
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  const UniqueFd fd(
      ::socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int knocked = is_six
                          ? ::connect(fd.get(), reinterpret_cast<sockaddr*>(&six), sizeof(six))
                          : ::connect(fd.get(), reinterpret_cast<sockaddr*>(&four), sizeof(four));
  (void)knocked;
}

}  // namespace

// civetweb's thread that accepts looks whether it is to end when somebody connects, else every 2 s.
MetricsServer::~MetricsServer() {
  if (server_ == nullptr) return;  // it never began
  const int knocked = port();
  absl::Notification closed;
  std::thread closing([&] {
    server_->close();
    closed.Notify();
  });
  while (!closed.WaitForNotificationWithTimeout(absl::Milliseconds(5))) Knock(host_, knocked);
  closing.join();
}

int MetricsServer::port() const { return server_->getListeningPorts().front(); }

std::string MetricsText(const MetricSource& source) {
  MetricSamples samples;
  source(samples);
  AddProcessMetrics(samples);
  return prometheus::TextSerializer().Serialize(std::move(samples).Take());
}

}  // namespace tandem
