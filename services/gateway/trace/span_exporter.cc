#include "services/gateway/trace/span_exporter.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kComplainInterval = absl::Minutes(1);

// Statuses after which the specification allows a retry.
bool IsRetryable(int http_status) {
  return http_status == 429 || http_status == 502 || http_status == 503 || http_status == 504;
}

}  // namespace

std::string_view SpanDropName(SpanDrop reason) {
  switch (reason) {
    case SpanDrop::kQueueFull:
      return "queue_full";
    case SpanDrop::kRejected:
      return "rejected";
    case SpanDrop::kUnreachable:
      return "unreachable";
    case SpanDrop::kShutdown:
      return "shutdown";
  }
  return "";
}

absl::StatusOr<std::unique_ptr<SpanExporter>> SpanExporter::Start(SpanExporterOptions options) {
  TANDEM_ASSIGN_OR_RETURN(std::string url, ParseCollectorUrl(options.url));
  return std::unique_ptr<SpanExporter>(new SpanExporter(std::move(options), std::move(url)));
}

SpanExporter::SpanExporter(SpanExporterOptions options, std::string url)
    : options_(std::move(options)), poster_(std::move(url), options_.ca_file) {
  thread_ = std::thread([this] { Run(); });
}

void SpanExporter::Flush() {
  MutexLock lock(mutex_);
  if (!stopping_) stop_by_ = absl::Now() + options_.flush;
  stopping_ = true;
  changed_.SignalAll();
  while (counts_.queued > 0 && changed_.WaitUntil(mutex_, stop_by_)) {
  }
}

SpanExporter::~SpanExporter() {
  Flush();
  {
    // The thread drops the rest of the queue.
    MutexLock lock(mutex_);
    stop_by_ = absl::InfinitePast();
    changed_.SignalAll();
  }
  poster_.Cancel();
  thread_.join();
  const SpanCounts end = counts();
  LogInfo("traces exported",
          {{"spans", end.exported},
           {"dropped", end.dropped[0] + end.dropped[1] + end.dropped[2] + end.dropped[3]}});
}

void SpanExporter::Add(std::shared_ptr<const SpanSource> source) {
  const size_t num_spans = source->num_spans();
  MutexLock lock(mutex_);
  if (stopping_ || counts_.queued + num_spans > options_.max_queued_spans) {
    const SpanDrop reason = stopping_ ? SpanDrop::kShutdown : SpanDrop::kQueueFull;
    counts_.dropped[static_cast<size_t>(reason)] += num_spans;
    return;
  }
  const bool was_full = counts_.queued >= options_.max_batch_spans;
  counts_.queued += num_spans;
  queue_.push_back(std::move(source));
  // The thread looks every batch_delay; waking it costs the caller microseconds.
  if (!was_full && counts_.queued >= options_.max_batch_spans) changed_.SignalAll();
}

SpanCounts SpanExporter::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

void SpanExporter::Run() {
  while (true) {
    const auto sources = TakeBatch();
    if (sources.empty()) return;
    Send(Encode(sources));
  }
}

std::vector<std::shared_ptr<const SpanSource>> SpanExporter::TakeBatch() {
  std::vector<std::shared_ptr<const SpanSource>> batch;
  MutexLock lock(mutex_);
  absl::Time due = absl::Now() + options_.batch_delay;
  while (!stopping_ && counts_.queued < options_.max_batch_spans) {
    if (changed_.WaitUntil(mutex_, due)) continue;
    if (!queue_.empty()) break;
    due = absl::Now() + options_.batch_delay;
  }
  size_t num_spans = 0;
  while (!queue_.empty() &&
         (batch.empty() || num_spans + queue_.front()->num_spans() <= options_.max_batch_spans)) {
    num_spans += queue_.front()->num_spans();
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return batch;
}

SpanExporter::Batch SpanExporter::Encode(
    const std::vector<std::shared_ptr<const SpanSource>>& sources) const {
  otlp::v1::ExportTraceServiceRequest request;
  otlp::v1::ResourceSpans& resource = *request.add_resource_spans();
  for (const auto& [key, value] : options_.resource) {
    otlp::v1::KeyValue& attribute = *resource.mutable_resource()->add_attributes();
    attribute.set_key(key);
    attribute.mutable_value()->set_string_value(value);
  }
  otlp::v1::ScopeSpans& spans = *resource.add_scope_spans();
  spans.mutable_scope()->set_name("tandem");
  Batch batch;
  for (const auto& source : sources) {
    source->AppendSpans(spans);
    batch.num_spans += source->num_spans();
  }
  batch.body = request.SerializeAsString();
  return batch;
}

void SpanExporter::Send(const Batch& batch) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  const absl::Time give_up = absl::Now() + options_.max_batch_age;
  absl::Duration back_off = options_.min_pause;
  while (true) {
    const auto result = poster_.Post("application/x-protobuf", batch.body, options_.timeout);
    absl::Duration pause = back_off * std::uniform_real_distribution<>(0.5, 1.0)(random);
    if (Settle(batch, result, pause)) return;
    back_off = std::min(back_off * 2, options_.max_pause);
    if (absl::Now() + pause >= give_up) return Drop(SpanDrop::kUnreachable, batch.num_spans);
    if (!Pause(pause)) return Drop(SpanDrop::kShutdown, batch.num_spans);
  }
}

bool SpanExporter::Settle(const Batch& batch, const absl::StatusOr<PostResult>& result,
                          absl::Duration& pause) {
  if (!result.ok()) {
    if (!absl::IsCancelled(result.status())) Complain(std::string(result.status().message()));
    return false;
  }
  if (IsRetryable(result->status)) {
    Complain(absl::StrFormat("HTTP status %d", result->status));
    pause = result->retry_after.value_or(pause);
    return false;
  }
  if (result->status / 100 != 2) {
    Complain(absl::StrFormat("HTTP status %d: the collector refuses the spans", result->status));
    Drop(SpanDrop::kRejected, batch.num_spans);
    return true;
  }
  if (std::exchange(failing_, false)) LogInfo("traces are exported again", {{"url", options_.url}});
  uint64_t rejected = 0;
  otlp::v1::ExportTraceServiceResponse response;
  if (response.ParseFromString(result->body)) {
    const int64_t said = response.partial_success().rejected_spans();
    rejected = std::min<uint64_t>(std::max<int64_t>(said, 0), batch.num_spans);
  }
  if (rejected > 0) {
    Complain(absl::StrFormat("the collector refuses %d of %d spans", rejected, batch.num_spans));
    Drop(SpanDrop::kRejected, rejected);
  }
  CountExported(batch.num_spans - rejected);
  return true;
}

bool SpanExporter::Pause(absl::Duration pause) {
  const absl::Time until = absl::Now() + pause;
  MutexLock lock(mutex_);
  while (absl::Now() < std::min(until, stop_by_)) {
    changed_.WaitUntil(mutex_, std::min(until, stop_by_));
  }
  return absl::Now() < stop_by_;
}

void SpanExporter::CountExported(uint64_t num_spans) {
  MutexLock lock(mutex_);
  counts_.exported += num_spans;
  counts_.queued -= num_spans;
  changed_.SignalAll();
}

void SpanExporter::Drop(SpanDrop reason, uint64_t num_spans) {
  MutexLock lock(mutex_);
  counts_.dropped[static_cast<size_t>(reason)] += num_spans;
  counts_.queued -= num_spans;
  changed_.SignalAll();
}

void SpanExporter::Complain(const std::string& what) {
  failing_ = true;
  if (absl::Now() < complained_ + kComplainInterval) return;
  complained_ = absl::Now();
  LogWarning("traces are not exported", {{"url", options_.url}, {"reason", what}});
}

}  // namespace tandem::gateway
