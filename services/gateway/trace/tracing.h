// The gateway's tracing: tracer, ring and exporter, set up from its flags.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/metrics/metric_spec.h"
#include "services/gateway/trace/span_exporter.h"
#include "services/gateway/trace/tracer.h"

namespace tandem::gateway {

// The value of --otlp that turns the export off.
inline constexpr char kOtlpOff[] = "off";

struct TraceFlags {
  std::string otlp;              // empty: OpenTelemetry's environment variables decide
  std::optional<double> sample;  // share of the traces that begin here; unset: all
  uint32_t keep = 64;            // requests
};

struct TraceMetrics {
  static constexpr MetricSpec kExported{"tandem_spans_exported_total", MetricType::kCounter,
                                        "Spans that the collector accepted."};
  static constexpr MetricSpec kDropped{
      "tandem_spans_dropped_total",
      MetricType::kCounter,
      "Spans lost. queue_full: the collector is slower than the gateway; rejected: it refused "
      "them; unreachable: it did not answer for too long; shutdown: the gateway ended first.",
      {"reason"}};
  static std::vector<MetricSpec> All() { return {kExported, kDropped}; }
};

class Tracing {
 public:
  // `model`: its name in spans.  INVALID_ARGUMENT: a wrong URL; names its flag or variable.
  static absl::StatusOr<std::unique_ptr<Tracing>> Create(const TraceFlags& flags,
                                                         const std::string& model,
                                                         const std::string& version);

  const TraceSampler& sampler() const { return sampler_; }
  // Whether traces are kept or exported: without either, the tracer need not run.
  bool enabled() const { return exporter_ != nullptr || ring().max_requests() > 0; }
  // Must outlive the engine that it observes.
  Tracer& tracer() { return *tracer_; }
  const TraceRing& ring() const { return tracer_->ring(); }
  // Adds TraceMetrics if spans are exported.  Thread-safe.
  void AddTo(MetricSamples& samples) const;
  const SpanExporter* exporter() const { return exporter_.get(); }  // null: no export
  // As SpanExporter::Flush.
  void Flush();

 private:
  Tracing() = default;
  TraceSampler sampler_;
  std::unique_ptr<SpanExporter> exporter_;  // null: no export
  std::unique_ptr<Tracer> tracer_;
};

// The collector's URL: `flag`, else a variable of `env` (std::getenv); empty: no export.  Exposed
// for tests.
std::string OtlpUrl(const std::string& flag, const char* (*env)(const char*));
// The PEM file to check an https collector's certificate with: from OpenTelemetry's variables, else
// SSL_CERT_FILE; empty: the system's certificates.  Exposed for tests.
std::string OtlpCaFile(const char* (*env)(const char*));

}  // namespace tandem::gateway
