// Compiles constraints in threads of their own and keeps them by content.
//
//   request --Get(source)--> known: done at once
//                            under way: waits with the others for the one compilation
//                            new: queue --> thread: CompileSource --> done for all who wait
//                                   ^                  | longer than `quick_time`
//                                   +-- slow queue <---+
//
// Tenants take turns in each queue; a source that several wait for comes with the first of their
// turns.  At most half of the threads compile slow sources, so sources
// that are made to take long delay others by `quick_time` each.  A source that fails is kept as
// well, so that it costs its budget once.  A compilation stops when the last of those who wait for
// it has gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/base/turn_queue.h"
#include "services/gateway/constraint/constraint.h"
#include "services/gateway/constraint/constraint_source.h"
#include "services/gateway/constraint/constraint_store.h"

namespace tandem::gateway::constraint {

struct ConstraintCacheOptions {
  size_t num_threads = 2;
  size_t max_waiting = 1024;             // requests that wait for a compilation
  size_t max_waiting_of_tenant = 256;    // of one tenant
  size_t max_bytes = size_t{256} << 20;  // of kept ones
  // Of a processor (WorkTime): then a source is slow; then it is refused.
  absl::Duration quick_time = absl::Milliseconds(100);
  absl::Duration compile_time = absl::Seconds(2);
  absl::Duration keep_timeouts = absl::Minutes(1);  // how long one that took longer is refused
  CompileLimits limits;
  MatcherLimits matcher;
  // A source was compiled in `time`, or could not be.  Called before those who wait for it get the
  // result, from a thread of the cache.
  std::function<void(const absl::Status& status, absl::Duration time)> on_compiled;
  // A request got a constraint that was known or under way.  Called from Get.
  std::function<void()> on_hit;
  // Replaced by tests.
  std::function<absl::StatusOr<Grammar>(const ConstraintSource&, const CompileLimits&)> compile =
      CompileSource;
};

// A request for a constraint.
struct ConstraintCaller {
  std::string tenant;
  absl::Time deadline = absl::InfiniteFuture();
};

// Thread-safe.
class ConstraintCache {
 public:
  using Result = ConstraintStore::Result;
  // Called once, with no lock held; must not block.
  using Done = std::function<void(const Result&)>;
  // Names a request that waits.
  using Ticket = uint64_t;
  static constexpr Ticket kNoTicket = 0;

  ConstraintCache(std::shared_ptr<const TokenTrie> trie, const ConstraintCacheOptions& options);
  // Requests that still wait get CANCELLED.
  ~ConstraintCache();
  ConstraintCache(const ConstraintCache&) = delete;
  ConstraintCache& operator=(const ConstraintCache&) = delete;

  // Calls `done` with the constraint: at once if it is known, else from a thread of the cache.
  // Returns kNoTicket if it was called already.  INVALID_ARGUMENT: the source is wrong, or takes
  // more time or memory to compile than `options` allow.  RESOURCE_EXHAUSTED: too many requests
  // wait.  DEADLINE_EXCEEDED: `caller`'s deadline passed.  CANCELLED: Cancel.
  Ticket Get(ConstraintSource source, Done done, const ConstraintCaller& caller = {});

  // The client of a request that waits has gone: its `done` is called with CANCELLED before this
  // returns.  Does nothing where `done` was called already or is being called.
  void Cancel(Ticket ticket);

  // Ends all requests that wait, and later ones, with `reason`, and drops the kept constraints.
  // Compilations under way stop.
  void Stop(const absl::Status& reason);

  struct Counts {
    size_t num_kept = 0;
    size_t bytes = 0;
    size_t waiting = 0;     // requests
    uint64_t hits = 0;      // known or under way
    uint64_t compiled = 0;  // sources that were compiled, failed ones included
  };
  Counts counts() const;

 private:
  struct Waiter {
    Done done;
    ConstraintCaller caller;
  };
  // A source that is to be compiled, or is being compiled.  Guarded by mutex_, but for the source
  // while a thread has it.
  struct Job {
    std::string key;
    ConstraintSource source;
    std::map<Ticket, Waiter> waiters;  // empty: everybody has gone
    std::set<std::string> queued_for;  // tenants: each may bring its turn
    bool slow = false;
    bool running = false;
    absl::Duration spent;
  };
  using JobPtr = std::shared_ptr<Job>;  // shared by the tables below and its thread

  void Run();
  // Waits for a source to compile; null after Stop.
  JobPtr NextJob();
  // Into the tenant's queue, if it is not there.
  void Enqueue(const JobPtr& job, const std::string& tenant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Result Compile(const Job& job, absl::Time deadline);
  // Its time as a quick one is over.
  void GoOnSlowly(const JobPtr& job, absl::Duration took);
  // `too_long`: it took all of its time.
  void EndJob(const JobPtr& job, Result result, absl::Duration took, bool too_long);
  // Whether nobody waits for `job`.  Ends requests whose deadline has passed.
  bool Abandoned(const Job& job);

  absl::Status CheckPlace(const std::string& tenant) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Done TakeWaiter(Ticket ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Done> TakeLate(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Requests for its source from now on are another job's.
  void Forget(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const TokenTrie> trie_;
  const ConstraintCacheOptions options_;
  ConstraintStore store_;

  mutable Mutex mutex_;
  CondVar wake_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mutex_);
  Ticket next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::flat_hash_map<std::string_view, JobPtr> jobs_ ABSL_GUARDED_BY(mutex_);  // by key
  absl::flat_hash_map<Ticket, JobPtr> tickets_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, size_t> waiting_of_tenant_
      ABSL_GUARDED_BY(mutex_);                                                 // none with 0
  absl::Time next_deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // at the earliest
  // May hold jobs whose requests have all gone, and those that another tenant's turn has brought.
  TurnQueue<JobPtr> quick_ ABSL_GUARDED_BY(mutex_);
  TurnQueue<JobPtr> slow_ ABSL_GUARDED_BY(mutex_);
  size_t num_slow_ ABSL_GUARDED_BY(mutex_) = 0;  // being compiled
  uint64_t hits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t compiled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;  // last: run on everything above
};

}  // namespace tandem::gateway::constraint
