#include "services/gateway/metrics/metrics_page.h"

#include <memory>
#include <utility>

#include "services/gateway/metrics/edge_metrics.h"
#include "services/gateway/metrics/key_metrics.h"

namespace tandem::gateway {

MetricSource GatewayPage(const GatewayMeters& meters, const Launcher& launcher, std::string version,
                         MetricSource more) {
  return [&meters, &launcher, version = std::move(version),
          more = std::move(more)](MetricSamples& samples) {
    v1::GetStatusResponse status;
    launcher.FillStatus(status);
    status.set_version(version);
    meters.engine.AddTo(status, launcher.counters(), launcher.constraint_counts(), meters.http,
                        samples);
    AddEdgeMetrics(meters.grpc, samples);
    if (meters.keys != nullptr) AddKeyMetrics(*meters.keys, samples);
    if (const auto pictures = launcher.picture_counts()) meters.pictures.AddTo(*pictures, samples);
    if (more) more(samples);
  };
}

absl::Status AddMetricsRoute(HttpRouter& router, MetricSource page) {
  return router.Add({.method = "GET",
                     .path_template = "/metrics",
                     .handler =
                         [page = std::move(page)](const HttpRequest& request,
                                                  const std::shared_ptr<HttpResponder>& responder) {
                           const HttpClient& client = *request.client;
                           const MetricSource seen = [&page, &client](MetricSamples& samples) {
                             page(samples);
                             if (!client.sees_all()) samples.KeepOnly("key", client.name());
                           };
                           HttpResponse response{.content_type = kMetricsContentType,
                                                 .body = MetricsText(seen)};
                           response.headers.emplace_back("Cache-Control", "no-store");
                           responder->Send(std::move(response));
                         },
                     .local = true});
}

}  // namespace tandem::gateway
