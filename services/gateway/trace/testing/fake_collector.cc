#include "services/gateway/trace/testing/fake_collector.h"

#include "absl/time/clock.h"
#include "services/common/base/check.h"

namespace tandem::gateway::testing {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

FakeCollector::FakeCollector(Answer answer, const TlsFiles& tls) : answer_(std::move(answer)) {
  HttpRouter router;
  TANDEM_CHECK(router
                   .Add({.method = "POST",
                         .path_template = "/v1/traces",
                         .handler =
                             [this](const HttpRequest& request,
                                    const std::shared_ptr<HttpResponder>& responder) {
                               Take(request, responder);
                             }})
                   .ok());
  auto server = HttpServer::Start(
      {.listen = "127.0.0.1:0", .tls_certificate = tls.certificate, .tls_key = tls.key},
      std::move(router));
  TANDEM_CHECK(server.ok());
  server_ = *std::move(server);
  url_ = server_->url() + "/v1/traces";
}

FakeCollector::~FakeCollector() {
  server_.reset();  // closes connections without an answer
}

void FakeCollector::Take(const HttpRequest& request,
                         const std::shared_ptr<HttpResponder>& responder) {
  otlp::v1::ExportTraceServiceRequest batch;
  TANDEM_CHECK(batch.ParseFromString(request.body));
  MutexLock lock(mutex_);
  HttpResponse response;
  if (answer_) response = answer_(static_cast<int>(num_posts_));
  ++num_posts_;
  content_type_ = std::string(request.Header("content-type").value_or(""));
  if (response.status == 200) kept_.push_back(std::move(batch));
  if (response.status == 0) {
    unanswered_.push_back(responder);
  } else {
    responder->Send(std::move(response));
  }
  changed_.SignalAll();
}

bool FakeCollector::WaitForBatches(size_t num_batches) {
  const absl::Time until = absl::Now() + kPatience;
  MutexLock lock(mutex_);
  while (num_posts_ < num_batches && changed_.WaitUntil(mutex_, until)) {
  }
  return num_posts_ >= num_batches;
}

bool FakeCollector::WaitForSpans(size_t num_spans) {
  const absl::Time until = absl::Now() + kPatience;
  MutexLock lock(mutex_);
  while (CountSpans() < num_spans && changed_.WaitUntil(mutex_, until)) {
  }
  return CountSpans() >= num_spans;
}

size_t FakeCollector::CountSpans() const {
  size_t num_spans = 0;
  for (const auto& batch : kept_) {
    for (const auto& resource : batch.resource_spans()) {
      for (const auto& scope : resource.scope_spans()) num_spans += scope.spans_size();
    }
  }
  return num_spans;
}

std::vector<otlp::v1::ExportTraceServiceRequest> FakeCollector::batches() const {
  MutexLock lock(mutex_);
  return kept_;
}

std::vector<otlp::v1::Span> FakeCollector::spans() const {
  std::vector<otlp::v1::Span> spans;
  MutexLock lock(mutex_);
  for (const auto& batch : kept_) {
    for (const auto& resource : batch.resource_spans()) {
      for (const auto& scope : resource.scope_spans()) {
        spans.insert(spans.end(), scope.spans().begin(), scope.spans().end());
      }
    }
  }
  return spans;
}

size_t FakeCollector::num_posts() const {
  MutexLock lock(mutex_);
  return num_posts_;
}

std::string FakeCollector::content_type() const {
  MutexLock lock(mutex_);
  return content_type_;
}

otlp::v1::AnyValue AttributeOf(const otlp::v1::Span& span, const std::string& key) {
  for (const otlp::v1::KeyValue& attribute : span.attributes()) {
    if (attribute.key() == key) return attribute.value();
  }
  return {};
}

}  // namespace tandem::gateway::testing
