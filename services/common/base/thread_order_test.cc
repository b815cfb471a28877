// What absl's locks and notifications order is ordered for ThreadSanitizer too (tsan_mutex.cc): it
// reports a race in these tests otherwise.
#include <gtest/gtest.h>

#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tandem {
namespace {

TEST(ThreadOrderTest, ANotificationThatHasComeOrdersWhatWasBefore) {
  for (int way = 0; way < 4; ++way) {
    int value = 0;
    absl::Notification written;
    std::thread writer([&] {
      value = 1;
      written.Notify();
    });
    bool come = true;
    if (way == 0) written.WaitForNotification();
    if (way == 1) come = written.WaitForNotificationWithTimeout(absl::Seconds(60));
    if (way == 2) come = written.WaitForNotificationWithDeadline(absl::Now() + absl::Seconds(60));
    const absl::Time patience = absl::Now() + absl::Seconds(60);
    while (!written.HasBeenNotified() && absl::Now() < patience) std::this_thread::yield();
    EXPECT_TRUE(come && written.HasBeenNotified());
    EXPECT_EQ(value, 1);
    writer.join();
  }
}

TEST(ThreadOrderTest, AMutexOrdersWhatItGuards) {
  absl::Mutex mutex;
  absl::CondVar changed;
  int value = 0;
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) {
      absl::MutexLock lock(&mutex);
      ++value;
      changed.Signal();
    }
  });
  {
    absl::MutexLock lock(&mutex);
    while (value < 50) changed.Wait(&mutex);
    const auto done = [&value] { return value == 100; };
    mutex.Await(absl::Condition(&done));
    EXPECT_EQ(value, 100);
  }
  writer.join();
}

}  // namespace
}  // namespace tandem
