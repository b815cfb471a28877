// Holds the threads of a cache, so that a test's requests wait for their compilation.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "services/common/testing/eventually.h"
#include "services/gateway/constraint/constraint_cache.h"

namespace tandem::gateway::constraint {

// Until its end.  The threads have compiled "held0", "held1" and so on.
class HeldThreads {
 public:
  explicit HeldThreads(ConstraintCache& cache, int num_threads = 2) {
    for (int i = 0; i < num_threads; ++i) {
      cache.Get({.kind = SourceKind::kRegex, .text = "held" + std::to_string(i)},
                [state = state_](const auto&) {
                  ++state->num_held;
                  state->released.wait();
                });
    }
    EXPECT_TRUE(tandem::testing::Eventually([&] { return state_->num_held == num_threads; }));
  }
  ~HeldThreads() { Release(); }
  HeldThreads(const HeldThreads&) = delete;
  HeldThreads& operator=(const HeldThreads&) = delete;

  void Release() {
    if (!released_) state_->release.set_value();
    released_ = true;
  }

 private:
  struct State {
    std::promise<void> release;
    std::shared_future<void> released = release.get_future().share();
    std::atomic<int> num_held = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();  // with the threads
  bool released_ = false;
};

}  // namespace tandem::gateway::constraint
