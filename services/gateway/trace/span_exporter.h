// Sends spans to an OpenTelemetry collector in the background: OTLP over HTTP, binary protobuf.
//
//   Add -> queue (bounded; full: dropped and counted) -> thread: batches -> POST -> collector
//
// Add does not wait for the collector and builds no spans: the exporter's thread builds them.  If
// the collector cannot take a batch now (429, 502, 503, 504, no connection), the thread sends it
// again after Retry-After or after growing pauses, until the batch is too old.
//
// Source: https://opentelemetry.io/docs/specs/otlp/ (OTLP/HTTP).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/trace/http_poster.h"
#include "tandem/otlp/v1/trace.pb.h"

namespace tandem::gateway {

// A record that spans are built from.  Immutable once added.
class SpanSource {
 public:
  virtual ~SpanSource() = default;
  virtual size_t num_spans() const = 0;
  virtual void AppendSpans(otlp::v1::ScopeSpans& spans) const = 0;
};

struct SpanExporterOptions {
  std::string url;      // "http://localhost:4318/v1/traces"; that path may be left out
  std::string ca_file;  // PEM certificates to trust for https; empty: the system's
  // Attributes of the resource: {"service.name", "tandem-gateway"}, ...
  std::vector<std::pair<std::string, std::string>> resource;
  size_t max_queued_spans = 65536;
  size_t max_batch_spans = 2048;
  absl::Duration batch_delay = absl::Seconds(1);  // until a batch that is not full is sent
  absl::Duration timeout = absl::Seconds(10);     // of one POST
  absl::Duration min_pause = absl::Milliseconds(500);
  absl::Duration max_pause = absl::Seconds(15);
  absl::Duration max_batch_age = absl::Minutes(1);  // older batches are dropped
  absl::Duration flush = absl::Seconds(2);          // at the end
};

// Why spans were not exported.
enum class SpanDrop : uint8_t {
  kQueueFull,    // the collector is slower than the gateway
  kRejected,     // the collector refused them
  kUnreachable,  // the collector did not answer until they were too old
  kShutdown,     // the process ended first
};
inline constexpr size_t kNumSpanDrops = 4;
// "queue_full"
std::string_view SpanDropName(SpanDrop reason);

struct SpanCounts {
  uint64_t exported = 0;
  std::array<uint64_t, kNumSpanDrops> dropped = {};  // by SpanDrop
  uint64_t queued = 0;                               // now
};

// Thread-safe.
class SpanExporter {
 public:
  // Starts the thread.  Does not wait for the collector.  INVALID_ARGUMENT: the URL is wrong.
  static absl::StatusOr<std::unique_ptr<SpanExporter>> Start(SpanExporterOptions options);
  // Flushes, and drops the rest.
  ~SpanExporter();

  void Add(std::shared_ptr<const SpanSource> source);
  // Refuses further records, and waits up to options.flush until the queue has been sent.
  void Flush();
  SpanCounts counts() const;

 private:
  struct Batch {
    std::string body;
    size_t num_spans = 0;
  };

  SpanExporter(SpanExporterOptions options, std::string url);
  void Run();
  // Waits for records to send; empty: the exporter ends.
  std::vector<std::shared_ptr<const SpanSource>> TakeBatch();
  Batch Encode(const std::vector<std::shared_ptr<const SpanSource>>& sources) const;
  void Send(const Batch& batch);
  // False: send the batch again, after `pause` at the earliest if it is set.
  bool Settle(const Batch& batch, const absl::StatusOr<PostResult>& result, absl::Duration& pause);
  // Waits for `pause`; false: the time for the last flush is over.
  bool Pause(absl::Duration pause);
  void CountExported(uint64_t num_spans);
  void Drop(SpanDrop reason, uint64_t num_spans);
  void Complain(const std::string& what);

  const SpanExporterOptions options_;
  HttpPoster poster_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<const SpanSource>> queue_ ABSL_GUARDED_BY(mutex_);
  SpanCounts counts_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_by_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time complained_ = absl::InfinitePast();  // the thread's own
  bool failing_ = false;                          // likewise
  std::thread thread_;                            // last: runs on everything above
};

}  // namespace tandem::gateway
