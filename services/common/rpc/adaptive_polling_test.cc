#include "services/common/rpc/adaptive_polling.h"

#include <gmock/gmock.h>
#include <grpcpp/alarm.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include "services/common/rpc/polling.h"

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using std::chrono::system_clock;

// The state after `times` waits of `length`.
AdaptivePolling After(nanoseconds length, int times) {
  AdaptivePolling wait;
  AdaptivePolling::Clock::time_point now;
  for (int i = 0; i < times; ++i) {
    wait.WaitBegins(now);
    now += length;
    wait.WaitEnds(now);
  }
  return wait;
}

TEST(AdaptivePollingTest, ExpectsWhatHasBeen) {
  EXPECT_FALSE(AdaptivePolling().expects_soon());
  for (const microseconds length : {microseconds(0), microseconds(20), microseconds(190)}) {
    EXPECT_TRUE(After(length, 50).expects_soon());
  }
  for (const nanoseconds length : {nanoseconds(microseconds(210)), nanoseconds(seconds(3600))}) {
    EXPECT_FALSE(After(length, 50).expects_soon());
  }
}

TEST(AdaptivePollingTest, LearnsQuicklyThatWaitsAreShortAfterALongOne) {
  AdaptivePolling wait = After(seconds(10), 5);
  AdaptivePolling::Clock::time_point now;
  int num_waits = 0;
  for (; !wait.expects_soon() && num_waits < 100; ++num_waits) {
    wait.WaitBegins(now);
    wait.WaitEnds(now += microseconds(50));
  }
  EXPECT_LE(num_waits, 8);
}

TEST(AdaptivePollingTest, AnEndWithoutABeginTeachesNothing) {
  AdaptivePolling wait = After(microseconds(100), 50);
  for (int i = 0; i < 50; ++i) wait.WaitEnds(AdaptivePolling::Clock::now() + seconds(1));
  EXPECT_TRUE(wait.expects_soon());
}

TEST(AdaptivePollingTest, NextGivesEventsTimeoutsAndTheEnd) {
  for (const microseconds earlier : {microseconds(50), microseconds(1000), microseconds(5000)}) {
    for (const microseconds length : {microseconds(0), microseconds(700), microseconds(3000)}) {
      AdaptivePolling wait = After(earlier, 50);
      grpc::CompletionQueue queue;
      void* tag = nullptr;
      bool ok = false;
      wait.WaitBegins(AdaptivePolling::Clock::now());
      EXPECT_EQ(wait.Next(queue, &tag, &ok, system_clock::now() + milliseconds(1)),
                grpc::CompletionQueue::TIMEOUT);
      wait.WaitEnds(AdaptivePolling::Clock::now());

      grpc::Alarm alarm;
      alarm.Set(&queue, system_clock::now() + length, &alarm);
      wait.WaitBegins(AdaptivePolling::Clock::now());
      EXPECT_EQ(wait.Next(queue, &tag, &ok, system_clock::now() + seconds(10)),
                grpc::CompletionQueue::GOT_EVENT);
      EXPECT_EQ(tag, &alarm);
      EXPECT_TRUE(ok);
      wait.WaitEnds(AdaptivePolling::Clock::now());

      queue.Shutdown();
      wait.WaitBegins(AdaptivePolling::Clock::now());
      EXPECT_EQ(wait.Next(queue, &tag, &ok, system_clock::now() + seconds(10)),
                grpc::CompletionQueue::SHUTDOWN);
    }
  }
}

TEST(AdaptivePollingTest, PollSeesWhatComesInEveryPartOfAWait) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  struct pollfd descriptor = {.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(AdaptivePolling::Poll(&descriptor, 1, 0), 0);
  EXPECT_EQ(AdaptivePolling::Poll(&descriptor, 1, 5), 0);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  for (const int timeout_ms : {0, 5, -1}) {
    EXPECT_EQ(AdaptivePolling::Poll(&descriptor, 1, timeout_ms), 1);
    EXPECT_EQ(descriptor.revents, POLLIN);
  }
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::PollForLatency();  // Next is to poll ahead
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
