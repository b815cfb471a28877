// Fetches pictures of requests from the hosts that --fetch-images names.
//
//   jobs that wait --> at most max_running jobs --> at most max_fetches of each --> files
//
// One thread runs all transfers, through libcurl's multi interface.  Of the jobs that wait, the next is
// the oldest one of the senders with the fewest running.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/pull/http.h"
#include "services/gateway/picture/fetch_rules.h"
#include "services/gateway/picture/fetch_transfer.h"
#include "services/gateway/picture/picture_stage.h"

namespace tandem::gateway {

struct PictureFetcherOptions {
  std::vector<std::string> hosts;  // as ParseFetchHost takes them
  FetchLimits limits;
  uint64_t max_job_bytes = uint64_t{64} << 20;  // of a job's files; times max_running is in memory
  uint32_t max_fetches = 4;                     // of one job at a time
  uint32_t max_running = 4;                     // jobs
  uint32_t max_running_per_sender = 2;
  uint32_t max_waiting = 64;  // jobs
  uint32_t max_waiting_per_sender = 16;
  // Of files that wait for others to be fetched.
  uint64_t max_waiting_bytes = uint64_t{256} << 20;
  uint64_t max_waiting_bytes_per_sender = uint64_t{64} << 20;
  absl::Duration job_timeout = absl::Seconds(60);  // with the wait for the others
  // For metrics, from the fetcher's thread; may be null.
  std::function<void(absl::Time begin)> on_fetched;    // of each URL, at its end
  std::function<void(const absl::Status&)> on_failed;  // of each job that could not be fetched
};

// The pictures of a request.  Some are URLs.
struct FetchJob {
  using Strings = std::shared_ptr<const std::vector<std::string>>;  // shared by n choices
  std::string sender;
  Strings files;
  Strings urls;  // by file: in FetchRules' normal form; empty: the file is there
  absl::Time deadline = absl::InfiniteFuture();
  // As in PictureJob.  May be null.
  std::shared_ptr<PictureTimes> times;  // shared with the caller
};

// Thread-safe.
class PictureFetcher {
 public:
  using Done = std::function<void(absl::StatusOr<FetchJob::Strings> files)>;
  using Ticket = uint64_t;
  static constexpr Ticket kNoTicket = 0;
  struct Counts {
    uint32_t waiting = 0;    // jobs
    uint32_t running = 0;    // jobs
    uint32_t transfers = 0;  // connections
  };

  // INVALID_ARGUMENT: a host.
  static absl::StatusOr<std::unique_ptr<PictureFetcher>> Create(PictureFetcherOptions options);
  // Ends every job with UNAVAILABLE.
  ~PictureFetcher();

  const FetchRules& rules() const { return rules_; }

  // Calls `done` once with the files of `job`: here where it is refused (kNoTicket), else from another
  // thread.  `done` must not block.  An URL that is there several times is fetched once.
  // Errors: INVALID_ARGUMENT names the picture, the host and the reason; RESOURCE_EXHAUSTED: too
  // many jobs wait, or this one waited too long; DEADLINE_EXCEEDED, CANCELLED; UNAVAILABLE: stopped.
  Ticket Get(FetchJob job, Done done);
  // Nobody waits any more: `done` is called with CANCELLED, unless it was called already, and the
  // connections are closed.  Not with a lock held that `done` takes.
  void Cancel(Ticket ticket);
  // Ends the jobs there are and those to come with `why`.
  void Stop(const absl::Status& why);

  Counts counts() const;

 private:
  struct Job;
  struct Transfer;

  PictureFetcher(PictureFetcherOptions options, FetchRules rules);
  void Run();
  absl::Status CheckRoom(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint32_t NumRunning(const std::string& sender) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next job to run; null: none may.
  std::shared_ptr<Job> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets go of jobs that were answered, starts others and their transfers.
  void Advance();
  // Ends jobs that have waited too long.
  void EndLate();
  void StartTransfers(const std::shared_ptr<Job>& job);
  void FinishTransfer(CURL* handle, CURLcode code);
  void Answer(const std::shared_ptr<Job>& job, absl::StatusOr<FetchJob::Strings> files);
  absl::StatusOr<FetchJob::Strings> FilesOf(Job& job) const;

  const PictureFetcherOptions options_;
  const FetchRules rules_;
  const pull::CurlMulti multi_;
  std::map<CURL*, std::unique_ptr<Transfer>> transfers_;  // the thread's; by handle
  mutable Mutex mutex_;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);  // not OK: no more jobs
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<std::shared_ptr<Job>> waiting_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::list<std::shared_ptr<Job>> running_ ABSL_GUARDED_BY(mutex_);
  std::map<Ticket, std::shared_ptr<Job>> open_ ABSL_GUARDED_BY(mutex_);  // not answered
  Ticket last_ticket_ ABSL_GUARDED_BY(mutex_) = kNoTicket;
  std::atomic<uint32_t> num_transfers_ = 0;
  std::thread thread_;
};

}  // namespace tandem::gateway
