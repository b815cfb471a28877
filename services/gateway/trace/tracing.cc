#include "services/gateway/trace/tracing.h"

#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::gateway {
namespace {

constexpr char kTracesVariable[] = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
constexpr char kVariable[] = "OTEL_EXPORTER_OTLP_ENDPOINT";

const char* Env(const char* name) { return std::getenv(name); }

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

}  // namespace

// OpenTelemetry's "Exporter" specification: the first names the path too, the second does not.
std::string OtlpUrl(const std::string& flag, const char* (*env)(const char*)) {
  if (flag == kOtlpOff) return "";
  if (!flag.empty()) return flag;
  if (const char* url = env(kTracesVariable); url != nullptr && *url != '\0') return url;
  if (const char* url = env(kVariable); url != nullptr && *url != '\0') {
    const std::string base = url;
    return base + (base.ends_with('/') ? "v1/traces" : "/v1/traces");
  }
  return "";
}

std::string OtlpCaFile(const char* (*env)(const char*)) {
  for (const char* name : {"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
                           "OTEL_EXPORTER_OTLP_CERTIFICATE", "SSL_CERT_FILE"}) {
    if (const char* file = env(name); file != nullptr && *file != '\0') return file;
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Tracing>> Tracing::Create(const TraceFlags& flags,
                                                         const std::string& model,
                                                         const std::string& version) {
  std::unique_ptr<Tracing> tracing(new Tracing());
  const std::string url = OtlpUrl(flags.otlp, Env);
  if (!url.empty()) {
    auto exporter = SpanExporter::Start({.url = url,
                                         .ca_file = OtlpCaFile(Env),
                                         .resource = {{"service.name", "tandem-gateway"},
                                                      {"service.version", version},
                                                      {"host.name", HostName()}}});
    if (!exporter.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: %s (--otlp off exports nothing)",
          flags.otlp.empty() ? "OpenTelemetry's endpoint in the environment" : "--otlp",
          std::string(exporter.status().message())));
    }
    tracing->exporter_ = *std::move(exporter);
  }
  tracing->sampler_ = TraceSampler(flags.sample.value_or(url.empty() ? 0.0 : 1.0));
  tracing->tracer_ = std::make_unique<Tracer>(TracerOptions{
      .model = model, .keep_requests = flags.keep, .exporter = tracing->exporter_.get()});
  return tracing;
}

void Tracing::AddTo(MetricSamples& samples) const {
  if (exporter_ == nullptr) return;
  const SpanCounts counts = exporter_->counts();
  samples.Add(TraceMetrics::kExported, static_cast<double>(counts.exported));
  for (size_t reason = 0; reason < kNumSpanDrops; ++reason) {
    samples.Add(TraceMetrics::kDropped, static_cast<double>(counts.dropped[reason]),
                {SpanDropName(static_cast<SpanDrop>(reason))});
  }
}

void Tracing::Flush() {
  if (exporter_ != nullptr) exporter_->Flush();
}

}  // namespace tandem::gateway
