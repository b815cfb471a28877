// Compiled constraints by the content of their source.  The least recently used go first.
#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/gateway/constraint/constraint.h"

namespace tandem::gateway::constraint {

// Thread-safe.  No method waits for a mask that is being made.
class ConstraintStore {
 public:
  using Result = absl::StatusOr<std::shared_ptr<Constraint>>;

  // `max_bytes`: of all results and their keys.
  explicit ConstraintStore(size_t max_bytes) : max_bytes_(max_bytes) {}
  ConstraintStore(const ConstraintStore&) = delete;
  ConstraintStore& operator=(const ConstraintStore&) = delete;

  std::optional<Result> Find(std::string_view key, absl::Time now);
  // Replaces a result of the same key.  Find does not return it from `until` on.
  void Keep(std::string key, Result result, absl::Time until);
  void Clear();

  struct Counts {
    size_t num_kept = 0;
    size_t bytes = 0;
  };
  Counts counts() const;

 private:
  struct Kept {
    std::string key;
    Result result;
    absl::Time until;
    std::atomic<size_t> bytes = 0;  // when it was measured last
  };
  using KeptList = std::list<std::shared_ptr<Kept>>;  // shared with whoever measures them

  // Constraints grow while they are used, so each is measured anew, without the lock.
  void Measure() const;
  std::shared_ptr<Kept> Remove(KeptList::iterator kept) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t TotalBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_bytes_;
  mutable Mutex mutex_;
  KeptList used_ ABSL_GUARDED_BY(mutex_);  // the last used at the back
  absl::flat_hash_map<std::string_view, KeptList::iterator> index_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway::constraint
