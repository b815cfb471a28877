// Bounds the memory of all request bodies, or of all whole answers, and chooses which one makes
// room when it is used up.
//
//   small bodies (up to kSmallBodyBytes) | large bodies
//   a reserve of an eighth, then the rest | the other seven eighths; one sender: half of it
//
// A body that does not fit replaces one that has stopped arriving: slow clients hold memory only
// while no other client needs it.  An answer has its full size at once and progresses as the client
// reads.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"

namespace tandem::gateway {

inline constexpr size_t kSmallBodyBytes = 64 << 10;

struct BodyBudgetLimits {
  size_t total_bytes = 128 << 20;
  size_t body_bytes = 16 << 20;  // the longest body; a sender may always have one
  // A body makes room for others if less than 64 KiB of it came within this time.
  absl::Duration stall = absl::Seconds(1);
};

// Thread-safe.
class BodyBudget {
 public:
  // The memory of one body, given back when this is destroyed.  Single-thread; must not outlive the
  // budget.
  class Share {
   public:
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // The body has `bytes` bytes now; never fewer than before.  False: refuse it, because memory is
    // used up or another body has replaced it.
    bool Grow(size_t bytes, absl::Time now);
    // For answers: the client has read more.
    void Move(absl::Time now);
    // The body is complete: it is no longer replaced.
    void Complete();
    // Whether another body has replaced this one.
    bool given_way() const;

   private:
    friend class BodyBudget;
    struct Entry;
    Share(BodyBudget& budget, std::list<Entry>::iterator entry);
    BodyBudget& budget_;
    const std::list<Entry>::iterator entry_;
  };

  explicit BodyBudget(const BodyBudgetLimits& limits);
  ~BodyBudget();

  // The share of a new body.  `sender` owns the memory that it uses.  `give_way` is called at most
  // once, when the body must be refused, on any thread and with the budget's lock held: it must
  // only pass the message on.
  std::unique_ptr<Share> Begin(std::string sender, std::function<void()> give_way, absl::Time now);

  size_t used_bytes() const;

 private:
  using Entries = std::list<Share::Entry>;
  bool TakeSmall(Share::Entry& entry, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool TakeLarge(Share::Entry& entry, size_t bytes, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees a body that has stopped arriving, one of `sender` unless that is null.
  bool MakeRoom(const Share::Entry& for_whom, const std::string* sender, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Share::Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const BodyBudgetLimits limits_;
  const size_t small_limit_;
  const size_t large_limit_;
  const size_t sender_limit_;
  mutable Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  size_t small_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t large_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> large_by_sender_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
