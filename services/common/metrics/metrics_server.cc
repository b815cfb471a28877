#include "services/common/metrics/metrics_server.h"

#include <CivetServer.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "services/common/metrics/process_metrics.h"

namespace tandem {
namespace {

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

class MetricsServer::Page final : public CivetHandler {
 public:
  explicit Page(MetricSource source) : source_(std::move(source)) {}
  bool handleGet(CivetServer*, mg_connection* connection) override {
    const std::string text = MetricsText(source_);
    mg_send_http_ok(connection, kMetricsContentType, static_cast<long long>(text.size()));
    mg_write(connection, text.data(), text.size());
    return true;
  }

 private:
  const MetricSource source_;
};

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    bool allow_remote,
                                                                    MetricSource source) {
  if (const absl::Status status = CheckAddress(address, allow_remote); !status.ok()) return status;
  std::unique_ptr<MetricsServer> server(new MetricsServer);
  server->page_ = std::make_unique<Page>(std::move(source));
  const std::vector<std::string> options = {"listening_ports", address, "num_threads", "2"};
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

MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return server_->getListeningPorts().front(); }

std::string MetricsText(const MetricSource& source) {
  MetricSamples samples;
  source(samples);
  AddProcessMetrics(samples);
  return prometheus::TextSerializer().Serialize(std::move(samples).Take());
}

}  // namespace tandem
