// Keeps the traces of the latest requests, in bounded memory.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/gateway/trace/trace_records.h"

namespace tandem::gateway {

struct KeptTrace {
  std::shared_ptr<const TracedRequest> request;          // shared with the exporter
  std::vector<std::shared_ptr<const TracedStep>> steps;  // likewise, and with other requests'
};

// Thread-safe.
class TraceRing {
 public:
  // Keeps at most `max_requests`, whose steps take at most `max_bytes`; a step counts once for each
  // of its requests.  Drops the oldest first.  A single trace is kept whatever its size.
  TraceRing(size_t max_requests, size_t max_bytes)
      : max_requests_(max_requests), max_bytes_(max_bytes) {}

  void Add(KeptTrace trace);
  // The traces of request `id`, in the order in which they ended (an HTTP request with several
  // choices has several).  With an empty id, those of the request that ended last.  With `tenant`,
  // only that tenant's.  Empty if there are no such traces.
  std::vector<KeptTrace> Find(std::string_view request_id,
                              const std::optional<std::string>& tenant = std::nullopt) const;
  size_t max_requests() const { return max_requests_; }

 private:
  struct Entry {
    KeptTrace trace;
    size_t num_bytes = 0;
  };
  const size_t max_requests_;
  const size_t max_bytes_;
  mutable Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::gateway
