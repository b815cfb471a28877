// From the files of pictures in requests to soft tokens.
//
//   files --> cache, by scope and SHA-256 of the file --> picture
//               | missing
//               v
//             tandem-image-decoder (a process) --> crops --> PreparePicture --> VisionExecutor --> cache
//
// Files that are URLs come from the fetcher first (PrepareRequests).  A few threads take the jobs of
// clients in turn, a batch of pictures each time.  One picture is decoded while another is encoded;
// calls of the encoder follow one another.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/base/turn_queue.h"
#include "services/common/model/vision_config.h"
#include "services/gateway/picture/picture_decoder.h"
#include "services/gateway/picture/picture_fetcher.h"
#include "services/gateway/picture/picture_stage.h"
#include "services/gateway/scheduler/picture.h"

namespace tandem::gateway {

enum class PictureOutcome : uint8_t {
  kCached,   // found in the cache
  kEncoded,  // decoded and encoded
  kRefused,  // the file is not a picture that is accepted
  kFailed,   // another error
};
inline constexpr int kNumPictureOutcomes = 4;

struct PictureEncoderOptions {
  PictureDecoderOptions decoder;
  PictureFetcherOptions fetcher;                    // without hosts nothing is fetched
  bool pan_and_scan = false;                        // crops are encoded too
  uint64_t max_cached_bytes = uint64_t{256} << 20;  // of soft tokens
  // A call of the encoder has so many pictures, but for the crops of the last one.
  uint32_t batch_pictures = 4;
  // Jobs that wait, and bytes of their files; of all senders and of one.
  uint32_t max_jobs = 64;
  uint32_t max_jobs_per_sender = 16;
  uint64_t max_bytes = uint64_t{256} << 20;
  uint64_t max_bytes_per_sender = uint64_t{64} << 20;
  // For metrics, from any thread; may be null.
  std::function<void(PictureStage, absl::Duration)> on_stage;
  std::function<void(PictureOutcome)> on_picture;
};

// The pictures of a request.
struct PictureJob {
  std::string sender;                                     // senders take turns
  std::string scope;                                      // encoded pictures are shared within it
  std::shared_ptr<const std::vector<std::string>> files;  // shared by n choices; not null
  absl::Time deadline = absl::InfiniteFuture();
  bool look_later = false;  // another thread than the caller's looks at the files' bytes
  // Gets what was done for them, for traces: whole when `done` is called with pictures.  May be null.
  std::shared_ptr<PictureTimes> times;  // shared with the caller
};

// Thread-safe.
class PictureEncoder {
 public:
  using Pictures = std::vector<PictureViews>;  // by file
  // Pixels to soft tokens: VisionExecutor::Encode.  Calls never overlap.
  using Encode = std::function<absl::StatusOr<std::vector<std::vector<float>>>(
      std::span<const std::vector<float>> pixels)>;
  struct Counts {
    uint64_t waiting = 0;  // jobs
    uint64_t cached = 0;   // files
    uint64_t cached_bytes = 0;
    std::array<uint64_t, kNumPictureOutcomes> outcomes = {};         // since construction
    std::array<absl::Duration, kNumPictureStages> stage_times = {};  // of all pictures, likewise
  };
  using Ticket = uint64_t;
  static constexpr Ticket kNoTicket = 0;

  // Errors of PictureDecoder::Create and PictureFetcher::Create.
  static absl::StatusOr<std::unique_ptr<PictureEncoder>> Create(PictureEncoderOptions options,
                                                                const VisionConfig& config,
                                                                Encode encode);
  // Ends every job with UNAVAILABLE.
  ~PictureEncoder();

  // Calls `done` once with the pictures of `job`, in order: at once where all are in the cache
  // (kNoTicket), else, and with look_later, from another thread.  `done` must not block.
  // Errors: INVALID_ARGUMENT names the picture, "images[1]: ..."; RESOURCE_EXHAUSTED: too many jobs
  // wait; DEADLINE_EXCEEDED, CANCELLED; UNAVAILABLE: stopped, or no worker; others as of
  // PictureDecoder and VisionExecutor.
  Ticket Get(PictureJob job, std::function<void(absl::StatusOr<Pictures>)> done);
  // Nobody waits any more: `done` is called with CANCELLED, unless it was called already.  Not with
  // a lock held that `done` takes.
  void Cancel(Ticket ticket);
  // Ends the jobs there are and those to come with `why`, the fetcher's too.
  void Stop(const absl::Status& why);

  // Null: pictures are not fetched.
  PictureFetcher* fetcher() const { return fetcher_.get(); }

  // Whether files may have crops: more than one view.
  bool pan_and_scan() const { return options_.pan_and_scan; }

  Counts counts() const;

 private:
  struct Key {
    std::string scope;
    std::array<unsigned char, 32> digest = {};
    auto operator<=>(const Key&) const = default;
  };
  struct Job {
    Ticket ticket = kNoTicket;
    PictureJob asked;
    uint64_t num_bytes = 0;
    bool waits = false;  // in waiting_ and counted there; guarded by mutex_
    // Its thread's, while it does not wait.
    std::vector<Key> keys;  // by file; empty: not looked at
    Pictures pictures;      // those that are there
    std::function<void(absl::StatusOr<Pictures>)> done;
  };
  struct Cached {
    Key key;
    PictureViews views;  // shared with sequences
  };
  // What waits of one sender.
  struct Waiting {
    uint32_t jobs = 0;
    uint64_t bytes = 0;
  };

  PictureEncoder(PictureEncoderOptions options, const VisionConfig& config, Encode encode,
                 std::unique_ptr<PictureDecoder> decoder);
  void Run();
  absl::Status CheckRoom(const Job& job) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountWaiting(const Job& job, bool more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void MakeKeys(Job& job);
  void PutInTurn(const std::shared_ptr<Job>& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next job, which waits no more; null: the end.
  std::shared_ptr<Job> TakeInTurn();
  // Fills the job's pictures from the cache where they have no views.
  void Find(Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether all pictures are there now.
  absl::StatusOr<bool> Work(Job& job);
  // A file of a job, decoded: pixel values of its views.
  struct Prepared {
    size_t file = 0;
    std::vector<std::vector<float>> views;
  };
  // Decodes and encodes files of the job that are missing until they are a batch.
  absl::Status WorkBatch(Job& job);
  absl::Status EncodeBatch(Job& job, std::vector<Prepared>& prepared)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(encode_mutex_);
  absl::StatusOr<Prepared> Prepare(const Job& job, size_t i);
  absl::Status Insert(const Key& key, std::span<std::vector<float>> soft_tokens,
                      PictureViews& views) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartFetcher();
  // Takes the job's right to be answered; false: somebody else has.
  bool TakeAnswer(Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportStage(PictureStage stage, absl::Time begin);
  // Likewise, and notes it in the job's times.
  void ReportStage(const Job& job, PictureTime time);
  void Report(PictureOutcome outcome, size_t num_pictures = 1);
  void ReportError(const absl::Status& status);

  const PictureEncoderOptions options_;
  const VisionConfig config_;
  const Encode encode_;
  const std::unique_ptr<PictureDecoder> decoder_;
  Mutex encode_mutex_;  // before mutex_
  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);  // not OK: no more jobs
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  TurnQueue<std::shared_ptr<Job>> waiting_ ABSL_GUARDED_BY(mutex_);
  Waiting waiting_of_all_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Waiting> waiting_of_ ABSL_GUARDED_BY(mutex_);    // by sender
  std::map<Ticket, std::shared_ptr<Job>> open_ ABSL_GUARDED_BY(mutex_);  // not answered
  Ticket last_ticket_ ABSL_GUARDED_BY(mutex_) = kNoTicket;
  uint32_t num_keys_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Cached> cached_ ABSL_GUARDED_BY(mutex_);  // used last first
  std::map<Key, std::list<Cached>::iterator> by_key_ ABSL_GUARDED_BY(mutex_);
  uint64_t cached_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<std::atomic<uint64_t>, kNumPictureOutcomes> outcomes_ = {};
  std::array<std::atomic<int64_t>, kNumPictureStages> stage_ns_ = {};
  std::unique_ptr<PictureFetcher> fetcher_;
  std::vector<std::thread> threads_;
};

}  // namespace tandem::gateway
