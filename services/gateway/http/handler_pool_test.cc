#include "services/gateway/http/handler_pool.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "services/common/testing/eventually.h"
#include "services/gateway/http/body_budget.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

// Work that begins and then waits to be let go.
struct Held {
  absl::Notification begun, go;
  std::function<void()> work() {
    return [this] {
      begun.Notify();
      go.WaitForNotification();
    };
  }
};

TEST(HandlerPoolTest, SmallWorkDoesNotWaitBehindLarge) {
  Held large[3];
  absl::Notification small;
  HandlerPool pool(2);
  for (Held& held : large) pool.Post("a", kSmallBodyBytes + 1, held.work());
  ASSERT_TRUE(large[0].begun.WaitForNotificationWithTimeout(kPatience));
  pool.Post("a", kSmallBodyBytes, [&] { small.Notify(); });
  EXPECT_TRUE(small.WaitForNotificationWithTimeout(kPatience));
  EXPECT_FALSE(large[1].begun.HasBeenNotified()) << "half of two threads is one";
  for (Held& held : large) held.go.Notify();
  EXPECT_TRUE(large[2].begun.WaitForNotificationWithTimeout(kPatience));
}

TEST(HandlerPoolTest, SendersTakeTurns) {
  Held first;
  absl::Notification done;
  std::string order;  // one thread works on large bodies
  HandlerPool pool(2);
  pool.Post("a", kSmallBodyBytes + 1, first.work());
  ASSERT_TRUE(first.begun.WaitForNotificationWithTimeout(kPatience));
  for (int i = 0; i < 3; ++i) pool.Post("a", kSmallBodyBytes + 1, [&] { order += 'a'; });
  pool.Post("b", kSmallBodyBytes + 1, [&] { order += 'b'; });
  pool.Post("c", kSmallBodyBytes + 1, [&] { order += 'c'; });
  pool.Post("a", kSmallBodyBytes + 1, [&] { done.Notify(); });
  first.go.Notify();
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(kPatience));
  EXPECT_EQ(order, "abcaa");
}

TEST(HandlerPoolTest, LargeWorkIsDoneBesideSmallWithoutEnd) {
  absl::Notification large;
  std::function<void()> again;  // one small piece of work posts the next
  HandlerPool pool(2);
  again = [&] {
    if (!large.HasBeenNotified()) pool.Post("a", 1, again);
  };
  for (int i = 0; i < 4; ++i) pool.Post("a", 1, again);
  pool.Post("b", kSmallBodyBytes + 1, [&] { large.Notify(); });
  EXPECT_TRUE(large.WaitForNotificationWithTimeout(kPatience));
  pool.Stop();
}

TEST(HandlerPoolTest, WorkThatHasNotBegunIsDestroyedAtTheEnd) {
  Held held[2];
  const auto token = std::make_shared<int>();
  HandlerPool pool(2);
  for (Held& one : held) pool.Post("a", 1, one.work());
  for (Held& one : held) ASSERT_TRUE(one.begun.WaitForNotificationWithTimeout(kPatience));
  pool.Post("a", 1, [token] { FAIL(); });
  std::thread stop([&] { pool.Stop(); });
  EXPECT_TRUE(tandem::testing::Eventually([&] { return token.use_count() == 1; }));
  for (Held& one : held) one.go.Notify();
  stop.join();
  pool.Post("a", 1, [token] { FAIL(); });
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace tandem::gateway
