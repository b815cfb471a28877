// All of the gateway's tracing, as its flags say.
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

// --otlp's value for none.
inline constexpr char kOtlpOff[] = "off";

struct TraceFlags {
  std::string otlp;              // empty: as OpenTelemetry's environment variables say
  std::optional<double> sample;  // of the traces that begin here; unset: all, if they are exported
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
  // `model`: as spans name it.  INVALID_ARGUMENT: a URL, and which flag or variable has it.
  static absl::StatusOr<std::unique_ptr<Tracing>> Create(const TraceFlags& flags,
                                                         const std::string& model,
                                                         const std::string& version);

  const TraceSampler& sampler() const { return sampler_; }
  // Whether anything is kept or exported, so that the tracer is worth calling.
  bool enabled() const { return exporter_ != nullptr || ring().max_requests() > 0; }
  // Must outlive the engine that it observes.
  Tracer& tracer() { return *tracer_; }
  const TraceRing& ring() const { return tracer_->ring(); }
  // Adds TraceMetrics, where spans are exported.  Thread-safe.
  void AddTo(MetricSamples& samples) const;
  const SpanExporter* exporter() const { return exporter_.get(); }  // null: nothing is exported
  // As SpanExporter::Flush.
  void Flush();

 private:
  Tracing() = default;
  TraceSampler sampler_;
  std::unique_ptr<SpanExporter> exporter_;  // null: nothing is exported
  std::unique_ptr<Tracer> tracer_;
};

// Where spans go: `flag`, or what `env` (std::getenv) says, empty for nowhere.  Exposed for tests.
std::string OtlpUrl(const std::string& flag, const char* (*env)(const char*));
// The PEM file that an https collector's certificate is checked with: OpenTelemetry's variables, else
// SSL_CERT_FILE; empty: the system's certificates.  Exposed for tests.
std::string OtlpCaFile(const char* (*env)(const char*));

}  // namespace tandem::gateway
