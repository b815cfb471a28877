// An OpenTelemetry collector for tests: takes OTLP over HTTP on a port of its own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "services/common/base/mutex.h"
#include "services/common/rpc/tls.h"
#include "services/gateway/http/http_server.h"
#include "tandem/otlp/v1/trace.pb.h"

namespace tandem::gateway::testing {

// Thread-safe.
class FakeCollector {
 public:
  // Its answer to the `n`-th batch, counted from 0.  200 keeps the batch's spans; status 0 answers
  // nothing until the end.  Null: always 200.
  using Answer = std::function<HttpResponse(int n)>;
  // `tls`: certificate and key for https; without them it serves http.
  explicit FakeCollector(Answer answer = nullptr, const TlsFiles& tls = {});
  ~FakeCollector();

  const std::string& url() const { return url_; }
  // Waits for that many batches, or for that many kept spans; false after ten seconds.
  bool WaitForBatches(size_t num_batches);
  bool WaitForSpans(size_t num_spans);

  std::vector<otlp::v1::ExportTraceServiceRequest> batches() const;  // those kept
  std::vector<otlp::v1::Span> spans() const;                         // of those
  size_t num_posts() const;
  std::string content_type() const;  // of the last

 private:
  void Take(const HttpRequest& request, const std::shared_ptr<HttpResponder>& responder);
  size_t CountSpans() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Answer answer_;
  mutable Mutex mutex_;
  CondVar changed_;
  size_t num_posts_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string content_type_ ABSL_GUARDED_BY(mutex_);
  std::vector<otlp::v1::ExportTraceServiceRequest> kept_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<HttpResponder>> unanswered_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<HttpServer> server_;
  std::string url_;
};

// The value of a span's attribute; an empty value if the span lacks it.
otlp::v1::AnyValue AttributeOf(const otlp::v1::Span& span, const std::string& key);

}  // namespace tandem::gateway::testing
