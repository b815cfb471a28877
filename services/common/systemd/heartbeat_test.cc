#include "services/common/systemd/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "services/common/systemd/progress_watch.h"
#include "services/common/systemd/testing/fake_service_manager.h"
#include "services/common/testing/eventually.h"

namespace tandem {
namespace {

// The watchdog's interval is short, so that beats come soon; nothing is measured against it.
class HeartbeatTest : public ::testing::Test {
 protected:
  HeartbeatTest() {
    ::setenv("NOTIFY_SOCKET", fake_.socket().c_str(), 1);
    ::setenv("WATCHDOG_USEC", "2000", 1);
    manager_ = std::make_unique<ServiceManager>(ServiceManager::FromEnvironment());
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("WATCHDOG_USEC");
  }

  // Returns when the pulse has been asked for `times` more.
  static void WaitForPulses(const std::atomic<int>& asked, int times) {
    const int until = asked + times;
    EXPECT_TRUE(testing::Eventually([&] { return asked >= until; }));
  }

  const Heartbeat::Options options_{.start_interval = absl::Milliseconds(1),
                                    .status_interval = absl::Milliseconds(1),
                                    .start_extension = absl::Milliseconds(4)};
  testing::FakeServiceManager fake_;
  std::unique_ptr<ServiceManager> manager_;
};

TEST_F(HeartbeatTest, SaysReadyOnceAndWhenItIsTrue) {
  std::atomic<bool> serving{false};
  std::atomic<int> asked{0};
  Heartbeat heartbeat(
      *manager_,
      [&] {
        ++asked;
        return Pulse{.serving = serving, .status = serving ? "serving" : "loading"};
      },
      options_);
  EXPECT_TRUE(fake_.WaitForLine("STATUS=loading"));
  EXPECT_TRUE(fake_.WaitForLine("EXTEND_TIMEOUT_USEC=4000"));
  EXPECT_EQ(fake_.Count("READY=1"), 0u);
  serving = true;
  EXPECT_TRUE(fake_.WaitForLine("READY=1"));
  serving = false;
  WaitForPulses(asked, 2);
  serving = true;
  WaitForPulses(asked, 3);
  heartbeat.End("draining");
  EXPECT_TRUE(fake_.WaitForLine("STATUS=draining"));
  EXPECT_EQ(fake_.Count("READY=1"), 1u);
  EXPECT_EQ(fake_.Count("STOPPING=1"), 1u);
  const std::vector<std::string> lines = fake_.Lines();
  const auto ready = std::find(lines.begin(), lines.end(), "READY=1");
  EXPECT_EQ(std::find(ready, lines.end(), "EXTEND_TIMEOUT_USEC=4000"), lines.end());
}

TEST_F(HeartbeatTest, AStartThatDoesNotProgressIsNotExtended) {
  std::atomic<int> asked{0};
  Heartbeat heartbeat(
      *manager_,
      [&] {
        ++asked;
        return Pulse{.starting = false, .status = "failed"};
      },
      options_);
  WaitForPulses(asked, 5);
  heartbeat.End("ending");
  EXPECT_EQ(fake_.Count("EXTEND_TIMEOUT_USEC=4000"), 0u);
}

TEST_F(HeartbeatTest, TheWatchdogIsFedWhileTheServiceLivesAndNoLonger) {
  std::atomic<bool> alive{true};
  std::atomic<int> asked{0};
  Heartbeat heartbeat(
      *manager_,
      [&] {
        ++asked;
        return Pulse{.serving = true, .alive = alive};
      },
      options_);
  ASSERT_TRUE(fake_.WaitForLine("WATCHDOG=1"));
  alive = false;
  WaitForPulses(asked, 2);  // the pulse that was under way may still have been a good one
  ASSERT_TRUE(manager_->Barrier(absl::Seconds(60)).ok());
  const size_t fed = fake_.Count("WATCHDOG=1");
  WaitForPulses(asked, 10);
  ASSERT_TRUE(manager_->Barrier(absl::Seconds(60)).ok());
  EXPECT_EQ(fake_.Count("WATCHDOG=1"), fed);
  alive = true;
  EXPECT_TRUE(testing::Eventually([&] { return fake_.Count("WATCHDOG=1") > fed; }));
}

TEST_F(HeartbeatTest, AStatusIsSaidWhenItChanges) {
  std::atomic<int> asked{0};
  Heartbeat heartbeat(
      *manager_,
      [&] {
        ++asked;
        return Pulse{.serving = true, .status = "same"};
      },
      options_);
  WaitForPulses(asked, 5);
  heartbeat.End("over");
  heartbeat.End("over");
  EXPECT_TRUE(fake_.WaitForLine("STATUS=over"));
  EXPECT_EQ(fake_.Count("STATUS=same"), 1u);
  EXPECT_EQ(fake_.Count("STATUS=over"), 1u);
}

TEST(ProgressWatchTest, ToleratesStandstillForItsPatienceAlone) {
  ProgressWatch watch;
  const absl::Time start = absl::UnixEpoch();
  const absl::Duration patience = absl::Seconds(10);
  EXPECT_TRUE(watch.Moves(0, start, patience));
  EXPECT_TRUE(watch.Moves(0, start + absl::Seconds(10), patience));
  EXPECT_FALSE(watch.Moves(0, start + absl::Seconds(11), patience));
  EXPECT_TRUE(watch.Moves(0, start + absl::Seconds(11), absl::Seconds(20)));
  EXPECT_TRUE(watch.Moves(1, start + absl::Seconds(12), patience));
  EXPECT_FALSE(watch.Moves(1, start + absl::Seconds(23), patience));
}

TEST(HeartbeatWithoutManagerTest, AsksForNoPulse) {
  const ServiceManager nobody;
  std::atomic<int> asked{0};
  Heartbeat heartbeat(nobody, [&] {
    ++asked;
    return Pulse{.serving = true};
  });
  heartbeat.End("ending");
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace tandem
