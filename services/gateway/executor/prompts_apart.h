// Prompts on a replica of their own, an NPU's, as one of the placements that an executor chooses from.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "services/common/base/mutex.h"
#include "services/common/plan/planner.h"
#include "services/gateway/placement/placement_costs.h"
#include "services/gateway/placement/slowdown.h"

namespace tandem::gateway {

class Executor;

// Steps that ran on one executor, for another to judge.  Thread-safe.
class StepLog {
 public:
  struct Entry {
    StepShape shape;
    StepSeconds seconds;  // by worker of the plan that it ran in
  };
  void Add(Entry entry) {
    MutexLock lock(mutex_);
    if (entries_.size() < kMost) entries_.push_back(std::move(entry));
  }
  std::vector<Entry> Take() {
    MutexLock lock(mutex_);
    return std::exchange(entries_, {});
  }

 private:
  static constexpr size_t kMost = 256;  // nobody may take them

  Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// What the executor that decodes has to know of the other.
struct PromptsApart {
  PlacementPolicy policy;  // of the other's plan
  // Loads that plan beside the decoder's, measures its steps, and what it takes to copy the KV of a
  // prompt's part (in `prompt.other`), and unloads it.
  std::function<absl::StatusOr<PlacementCosts>(Executor& decoder, const ReferenceLoad& load)>
      measure;
  // Called when the placement in force has, or no longer has, prompts apart; also if it had before.
  std::function<void(bool apart)> use;
  std::shared_ptr<StepLog> steps;  // of the other's plan
};

}  // namespace tandem::gateway
