// The executor when the loader dies, and workers are killed, stopped or terminated.
#include <csignal>
#include <optional>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "tests/integration/executor_fixture.h"

namespace tandem::gateway {
namespace {

using ::testing::ContainsRegex;
using testing::HasCode;
using ::testing::HasSubstr;
using testing::StatusIs;
using ExecutorFaultsTest = ExecutorTest;

TEST_F(ExecutorFaultsTest, RunningStreamsDoNotNoticeTheLoadersDeath) {
  StartLoader();
  StartWorker("gpu0");
  ExecutorOptions options = Options({"gpu0"}, NpuPolicy::kOff);
  options.worker_wait = absl::Seconds(1);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 5));
  loader_.reset();
  ASSERT_OK_AND_ASSIGN(const auto after, Greedy(*executor, prompt_, 5));
  EXPECT_EQ(before, after);
  EXPECT_THAT(executor->Recover(nullptr),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("loader at")));
  StartLoader();
  ASSERT_OK(executor->Recover(nullptr));
  ASSERT_OK_AND_ASSIGN(const auto again, Greedy(*executor, prompt_, 5));
  EXPECT_EQ(before, again);
}

TEST_F(ExecutorFaultsTest, AWorkerThatMissesItsDeadlineIsDeadUntilRecovery) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  ExecutorOptions options = Options({"gpu0", "npu0"}, NpuPolicy::kRequire);
  options.segment_deadline = absl::Seconds(1);
  const auto executor = MustStart(options);
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  // The signal may reach the worker a call or two later.
  workers_["npu0"]->Signal(SIGSTOP);
  EXPECT_THAT(Greedy(*executor, prompt_, 4),
              StatusIs(absl::StatusCode::kUnavailable,
                       ContainsRegex("Attend\\([0-9]+\\) on npu0: .*did not answer")));
  EXPECT_THAT(Greedy(*executor, prompt_, 1), HasCode(absl::StatusCode::kUnavailable));
  std::thread wakes([this] {
    absl::SleepFor(absl::Milliseconds(400));
    workers_["npu0"]->Signal(SIGCONT);
  });
  EXPECT_OK(executor->Recover(nullptr));
  wakes.join();
  ASSERT_OK_AND_ASSIGN(const auto after, Greedy(*executor, prompt_, 4));
  EXPECT_EQ(before, after) << "what it answered late went nowhere";
}

TEST_F(ExecutorFaultsTest, UnderPreferAKilledNpuLeavesTheGpuToGoOn) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  const auto executor = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kPrefer));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto before, Greedy(*executor, prompt_, 4));
  workers_.erase("npu0");
  EXPECT_THAT(Greedy(*executor, prompt_, 4), HasCode(absl::StatusCode::kUnavailable));
  ASSERT_OK(executor->Recover(nullptr));
  EXPECT_EQ(executor->plan().segments.size(), 1u);
  EXPECT_THAT(executor->plan().notice, HasSubstr("npu0.sock is not there"));
  ASSERT_OK_AND_ASSIGN(const auto after, Greedy(*executor, prompt_, 4));
  EXPECT_EQ(before, after);
}

TEST_F(ExecutorFaultsTest, FiftyKillsInMidStepAreFiftyRecoveriesAndNoLeak) {
  StartLoader();
  StartWorker("gpu0");
  StartWorker("npu0");
  const auto executor = MustStart(Options({"gpu0", "npu0"}, NpuPolicy::kRequire));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK_AND_ASSIGN(const auto expected, Greedy(*executor, prompt_, 3));
  std::mt19937 random(20);
  std::optional<testing::DescriptorCount> descriptors;
  std::optional<uint32_t> regions;
  for (int round = 0; round < 50; ++round) {
    const std::string victim = random() % 2 == 0 ? "gpu0" : "npu0";
    std::thread killer([&, delay = absl::Microseconds(random() % 20000)] {
      absl::SleepFor(delay);
      workers_[victim]->Signal(SIGKILL);
    });
    absl::Status status;
    while (status.ok()) status = Greedy(*executor, prompt_, 3).status();
    killer.join();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr(victim))) << round;
    workers_[victim]->Wait();
    StartWorker(victim);
    ASSERT_OK(executor->Recover(nullptr)) << round;
    ASSERT_OK_AND_ASSIGN(const auto answer, Greedy(*executor, prompt_, 3));
    EXPECT_EQ(answer, expected);
    if (round == 4) {
      descriptors = testing::CountDescriptors();
      regions = loader_->store().GetStatus().num_regions;
    }
  }
  // A connection that is being closed may still be there for a moment.
  for (int i = 0; i < 300 && testing::CountDescriptors().others > descriptors->others; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_LE(testing::CountDescriptors().others, descriptors->others);
  EXPECT_LE(testing::CountDescriptors().eventfds, descriptors->eventfds + 4);
  EXPECT_LE(loader_->store().GetStatus().num_regions, *regions);
}

TEST_F(ExecutorFaultsTest, ATerminatedWorkerDrainsAndExitsCleanly) {
  StartLoader();
  StartWorker("gpu0");
  const auto executor = MustStart(Options({"gpu0"}, NpuPolicy::kOff));
  ASSERT_NE(executor, nullptr);
  ASSERT_OK(Greedy(*executor, prompt_, 2));
  workers_["gpu0"]->Signal(SIGTERM);
  EXPECT_EQ(workers_["gpu0"]->Wait(), 0) << "exit status";
  workers_.clear();
  EXPECT_THAT(Greedy(*executor, prompt_, 2), HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace tandem::gateway
