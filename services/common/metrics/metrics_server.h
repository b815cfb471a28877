// The page that Prometheus reads, on a port of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/metrics/metric_spec.h"

class CivetServer;

namespace tandem {

// Adds a service's metrics to a scrape.  Called from the server's threads, one scrape at a time or
// several at once.
using MetricSource = std::function<void(MetricSamples&)>;

// Whether a Host field is an address or a name of loopback: "127.0.0.1:9464", "[::1]", "localhost".
// A page of another name that was made to lead here does not send that.
bool IsNameOfThisMachine(std::string_view host);

// Serves GET /metrics until it is destroyed.
class MetricsServer {
 public:
  // `address`: "HOST:PORT", HOST being loopback unless `allow_remote`; port 0 takes a free one. The
  // process's own metrics (process_metrics.h) come after those of `source`.
  // INVALID_ARGUMENT: an address that is malformed or not loopback; ALREADY_EXISTS: a port in use.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              bool allow_remote,
                                                              MetricSource source);
  // As Start; null for an empty `address`.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> StartIf(const std::string& address,
                                                                bool allow_remote,
                                                                MetricSource source);
  ~MetricsServer();

  int port() const;

 private:
  class Page;
  MetricsServer() = default;
  std::string host_;
  std::unique_ptr<Page> page_;
  std::unique_ptr<CivetServer> server_;
};

inline constexpr char kMetricsContentType[] = "text/plain; version=0.0.4; charset=utf-8";
// The page as text, format 0.0.4: for servers that have a port already.
std::string MetricsText(const MetricSource& source);

}  // namespace tandem
