// What gRPC and protobuf print, as lines of our own log.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"

namespace tandem {

// From now on the two libraries log by Log(), in its format, with event=grpc or event=protobuf and
// the place in their source.  Their errors are warnings here: a call that failed says so itself.
// What strangers send can make them print, so at most kLibraryLines in kLibraryLinesPeriod are
// written; the next line after that tells how many were left out.
// Call once, after InitLogging, before either library works.
void RouteLibraryLogs();
// ... they log nothing: for programs whose errors are printed, not logged.
void SilenceLibraryLogs();

inline constexpr uint32_t kLibraryLines = 10;
inline constexpr absl::Duration kLibraryLinesPeriod = absl::Seconds(10);

// Thread-safe.
class LineLimit {
 public:
  // Whether a line may be written at `now`: if so, how many were left out before it.
  std::optional<uint64_t> Admit(absl::Time now);

 private:
  Mutex mutex_;
  absl::Time begin_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // of the period
  uint32_t lines_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem
