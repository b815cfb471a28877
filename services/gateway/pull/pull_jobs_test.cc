#include "services/gateway/pull/pull_jobs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "services/common/testing/eventually.h"

namespace tandem::gateway {
namespace {

using tandem::testing::Eventually;

class Listener : public PullListener {
 public:
  bool OnProgress(const pull::PullProgress&) override {
    ++num_progress;
    return listens;
  }
  void OnEnd(const absl::Status& status) override {
    const MutexLock lock(mutex_);
    end_ = status;
    changed_.SignalAll();
  }
  absl::Status WaitForEnd() {
    const MutexLock lock(mutex_);
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (!end_.has_value() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return end_.value_or(absl::DeadlineExceededError("no end"));
  }
  std::atomic<int> num_progress = 0;
  std::atomic<bool> listens = true;

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

pull::ModelName Named(const std::string& text) { return *pull::ParseModelName(text); }

// Goes on until it is stopped, or `done`.
struct EndlessPull {
  std::atomic<bool> done = false;
  std::atomic<int> num_begun = 0, num_stopped = 0;
  PullJobs::PullModel AsFunction() {
    return [this](const pull::ModelName&, const auto& progress) -> absl::Status {
      ++num_begun;
      pull::PullProgress state;
      while (!done) {
        state.phase = state.phase == pull::PullPhase::kResolving ? pull::PullPhase::kDownloading
                                                                 : pull::PullPhase::kResolving;
        if (!progress(state)) {
          ++num_stopped;
          return absl::CancelledError("stopped");
        }
        absl::SleepFor(absl::Milliseconds(1));
      }
      return absl::OkStatus();
    };
  }
};

TEST(PullJobsTest, AllWhoAskForAModelShareItsPull) {
  EndlessPull endless;
  PullJobs jobs(endless.AsFunction());
  const auto first = std::make_shared<Listener>(), second = std::make_shared<Listener>();
  ASSERT_TRUE(jobs.Start(Named("a:b"), first).ok());
  ASSERT_TRUE(jobs.Start(Named("A:B"), second).ok());
  EXPECT_TRUE(Eventually([&] { return first->num_progress > 0 && second->num_progress > 0; }));
  endless.done = true;
  EXPECT_TRUE(first->WaitForEnd().ok());
  EXPECT_TRUE(second->WaitForEnd().ok());
  EXPECT_EQ(endless.num_begun, 1);
}

TEST(PullJobsTest, APullThatNobodyListensToIsStopped) {
  EndlessPull endless;
  PullJobs jobs(endless.AsFunction());
  const auto listener = std::make_shared<Listener>();
  ASSERT_TRUE(jobs.Start(Named("a"), listener).ok());
  listener->listens = false;
  EXPECT_TRUE(Eventually([&] { return endless.num_stopped == 1; }));
}

// The pull is to stop, since its progress callback returned false, but has not ended yet.
TEST(PullJobsTest, WhoComesWhileAnAbandonedPullEndsIsNotCancelledWithIt) {
  PullJobs* all = nullptr;
  const auto gone = std::make_shared<Listener>(), next = std::make_shared<Listener>();
  gone->listens = false;
  std::atomic<int> num_begun = 0;
  PullJobs jobs([&](const pull::ModelName& name, const auto& progress) -> absl::Status {
    if (++num_begun > 1) return absl::OkStatus();
    EXPECT_FALSE(progress({}));
    EXPECT_TRUE(all->Start(name, next).ok());
    return absl::CancelledError("stopped");
  });
  all = &jobs;
  ASSERT_TRUE(jobs.Start(Named("a"), gone).ok());
  EXPECT_TRUE(next->WaitForEnd().ok());
  EXPECT_EQ(num_begun, 2);
}

TEST(PullJobsTest, ThereAreNoMoreThanAFewAndTheEndStopsThem) {
  EndlessPull endless;
  const auto first = std::make_shared<Listener>();
  {
    PullJobs jobs(endless.AsFunction());
    ASSERT_TRUE(jobs.Start(Named("a"), first).ok());
    ASSERT_TRUE(jobs.Start(Named("b"), std::make_shared<Listener>()).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(jobs.Start(Named("c"), std::make_shared<Listener>())));
  }
  EXPECT_TRUE(absl::IsCancelled(first->WaitForEnd()));
}

}  // namespace
}  // namespace tandem::gateway
