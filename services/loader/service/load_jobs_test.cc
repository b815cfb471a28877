#include "services/loader/service/load_jobs.h"

#include <gtest/gtest.h>

#include "absl/strings/str_format.h"

namespace tandem::loader {
namespace {

using Loaded = absl::StatusOr<std::shared_ptr<const ResidentModel>>;

class FakeWatcher : public LoadWatcher {
 public:
  void OnProgress(const PackProgress&) override {
    absl::MutexLock lock(&mutex_);
    EXPECT_FALSE(result_.has_value()) << "nothing follows the end";
    ++num_progress_;
  }
  void OnLoaded(const Loaded& model) override {
    absl::MutexLock lock(&mutex_);
    EXPECT_FALSE(result_.has_value());
    result_ = model;
  }
  void AwaitProgress() {
    const auto seen = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return num_progress_ > 0; };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&seen));
  }
  Loaded Await() {
    const auto ended = [this]()
                           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return result_.has_value(); };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&ended));
    return *result_;
  }
  bool ended() {
    absl::MutexLock lock(&mutex_);
    return result_.has_value();
  }

 private:
  absl::Mutex mutex_;
  int num_progress_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Loaded> result_ ABSL_GUARDED_BY(mutex_);
};

// Loads that report progress until they are let go of or given up.
class LoadJobsTest : public testing::Test {
 protected:
  Loaded Load(const std::string& name, const std::function<bool(const PackProgress&)>& progress) {
    ++num_loads_;
    while (!released_.load()) {
      if (!progress({"packing", 1, 2})) return absl::CancelledError("given up");
      absl::SleepFor(absl::Milliseconds(1));
    }
    if (name == "bad") return absl::InvalidArgumentError("at byte 7: bad");
    auto model = std::make_shared<ResidentModel>();
    model->name = name;
    return model;
  }

  std::shared_ptr<FakeWatcher> Watch(const std::string& name) {
    auto watcher = std::make_shared<FakeWatcher>();
    EXPECT_TRUE(jobs_->Watch(name, watcher).ok());
    return watcher;
  }

  std::atomic<bool> released_{false};
  std::atomic<int> num_loads_{0};
  std::unique_ptr<LoadJobs> jobs_ = std::make_unique<LoadJobs>(
      [this](const std::string& name, const std::function<bool(const PackProgress&)>& progress) {
        return Load(name, progress);
      });
};

TEST_F(LoadJobsTest, AllWhoWaitForOneModelGetTheSameLoad) {
  const auto first = Watch("model"), second = Watch("model");
  second->AwaitProgress();
  released_ = true;
  const Loaded model = first->Await();
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(second->Await().value(), *model);
  EXPECT_EQ(num_loads_, 1);
}

TEST_F(LoadJobsTest, OneWhoLeavesDoesNotStopTheLoadForTheOther) {
  const auto leaving = Watch("model"), staying = Watch("model");
  staying->AwaitProgress();
  jobs_->Unwatch("model", leaving.get());
  released_ = true;
  EXPECT_TRUE(staying->Await().ok());
  EXPECT_FALSE(leaving->ended());
  EXPECT_EQ(num_loads_, 1);
}

TEST_F(LoadJobsTest, ALoadThatNobodyWaitsForIsGivenUp) {
  const auto leaving = Watch("model");
  leaving->AwaitProgress();
  jobs_->Unwatch("model", leaving.get());
  const auto next = Watch("other");  // its load begins once the first has ended
  next->AwaitProgress();
  released_ = true;
  EXPECT_EQ(next->Await().value()->name, "other");
  EXPECT_FALSE(leaving->ended());
}

TEST_F(LoadJobsTest, FailuresReachEveryoneAndTheNextLoadRuns) {
  const auto first = Watch("bad"), second = Watch("bad"), good = Watch("good");
  released_ = true;
  EXPECT_EQ(first->Await().status(), absl::InvalidArgumentError("at byte 7: bad"));
  EXPECT_EQ(second->Await().status(), absl::InvalidArgumentError("at byte 7: bad"));
  EXPECT_TRUE(good->Await().ok());
}

TEST_F(LoadJobsTest, QueuesAreBounded) {
  std::vector<std::shared_ptr<FakeWatcher>> watchers;
  for (size_t i = 0; i < LoadJobs::kMaxJobs; ++i) {
    watchers.push_back(Watch(absl::StrFormat("model %d", i)));
  }
  EXPECT_EQ(jobs_->Watch("one more", std::make_shared<FakeWatcher>()).code(),
            absl::StatusCode::kResourceExhausted);
  for (size_t i = 1; i < LoadJobs::kMaxWatchers; ++i) watchers.push_back(Watch("model 0"));
  EXPECT_EQ(jobs_->Watch("model 0", std::make_shared<FakeWatcher>()).code(),
            absl::StatusCode::kResourceExhausted);
  released_ = true;
  for (const auto& watcher : watchers) EXPECT_TRUE(watcher->Await().ok());
}

TEST_F(LoadJobsTest, ShutdownStopsTheLoadAndTellsEveryone) {
  const auto loading = Watch("model"), waiting = Watch("other");
  loading->AwaitProgress();
  jobs_.reset();
  EXPECT_TRUE(absl::IsUnavailable(loading->Await().status()));
  EXPECT_TRUE(absl::IsUnavailable(waiting->Await().status()));
  EXPECT_EQ(num_loads_, 1);
}

}  // namespace
}  // namespace tandem::loader
