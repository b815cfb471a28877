// Brings the missing bytes of a file, over several connections, each asking for one range at a
// time.
//
//   missing ranges -> segments (a queue) -> slots, one connection each -> PartFile
//                         ^                    |
//                         +---- the rest ------+   when a connection ends early
//
// A connection that is cut costs nothing that has arrived: what its segment still lacks goes back
// to the queue.  All of it runs on the caller's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/pull/http.h"
#include "services/common/pull/part_file.h"

namespace tandem::pull {

struct TransferOptions {
  int connections = 4;
  uint64_t segment_bytes = 32 << 20;
  int max_failures = 8;  // in a row, with no byte in between
  absl::Duration first_backoff = absl::Milliseconds(500);
  absl::Duration longest_wait = absl::Minutes(5);  // that a host may ask for
  absl::Duration save_interval = absl::Seconds(2);
};

enum class TransferEnd {
  kComplete,
  kChanged,  // the host has another file there now
  kRefused,  // 401, 403, 404 or 410: the address may have ended to hold
};

class Transfer {
 public:
  // `part`: Borrowed; must outlive this.
  Transfer(std::string url, HttpOptions http, PartFile& part, TransferOptions options);
  ~Transfer();

  // `progress` gets the bytes received so far, a few times a second, and returns false to stop:
  // CANCELLED.  UNAVAILABLE: too many failures in a row, or a wait that is too long;
  // PERMISSION_DENIED: a redirect that leads where none may; else the file system's or the
  // certificate's error.
  absl::StatusOr<TransferEnd> Run(const std::function<bool(uint64_t)>& progress);

  // Bytes that came, those of a file that changed meanwhile included.
  uint64_t received_bytes() const { return received_bytes_; }

 private:
  struct Slot;
  enum class Verdict { kNone, kTake, kSkip, kChanged, kNoRanges, kBroken, kFileError };

  static size_t TakeBody(char* bytes, size_t size, size_t count, void* slot);
  size_t Take(Slot& slot, std::string_view bytes);
  Verdict Judge(Slot& slot);
  void Queue(std::vector<PartFile::Range> missing);
  void Assign(absl::Time now);
  void Begin(Slot& slot, PartFile::Range segment);
  void Release(Slot& slot);
  // Looks at a request that has ended.
  void Settle(Slot& slot, CURLcode code);
  void SettleStatus(Slot& slot, long status);
  void Failed(const Slot& slot, const std::string& why, std::optional<absl::Duration> wait = {});
  absl::Status WithoutRanges();
  void AbortAll();
  size_t num_active() const;

  std::string url_;
  const HttpOptions http_;
  PartFile& part_;
  const TransferOptions options_;
  CurlMulti multi_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::deque<PartFile::Range> queue_;
  size_t max_active_;
  bool without_ranges_ = false;
  int failures_ = 0, redirects_ = 0;
  uint64_t received_bytes_ = 0;
  uint64_t furthest_ = 0;  // without ranges: where an attempt came to
  absl::Time not_before_ = absl::InfinitePast();
  absl::Status error_;
  std::optional<TransferEnd> end_;
};

}  // namespace tandem::pull
