#include "services/gpu_worker/emulator/driver/sync.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>

namespace tandem::rdna {
namespace {

constexpr SyncTable::WaitHow kAll = {.all = true};
constexpr SyncTable::WaitHow kLater = {.all = true, .wait_for_submit = true};

int WaitFor(SyncTable& sync, std::vector<SyncTable::WaitFor> objects, SyncTable::WaitHow how,
            int64_t milliseconds = 0, uint32_t* first = nullptr) {
  return sync.Wait(objects, how, DeadlineIn(milliseconds), first);
}

TEST(SyncTest, BinaryObjectsHoldOneFence) {
  SyncTable sync;
  const uint32_t object = sync.Create(false);
  EXPECT_EQ(WaitFor(sync, {{object, 0}}, kAll), EINVAL);  // nothing was submitted
  EXPECT_EQ(WaitFor(sync, {{object, 0}}, kLater), ETIME);
  const auto fence = std::make_shared<Fence>();
  EXPECT_EQ(sync.Attach(object, 0, fence), 0);
  EXPECT_EQ(WaitFor(sync, {{object, 0}}, kAll), ETIME);
  EXPECT_EQ(WaitFor(sync, {{object, 0}}, {.all = true, .available = true}), 0);
  sync.Signal(fence);
  EXPECT_EQ(WaitFor(sync, {{object, 0}}, kAll), 0);
  EXPECT_EQ(sync.Reset(std::vector<uint32_t>{object}), 0);
  EXPECT_EQ(WaitFor(sync, {{object, 0}}, kAll), EINVAL);
  EXPECT_EQ(WaitFor(sync, {{sync.Create(true), 0}}, kAll), 0);
}

TEST(SyncTest, TimelinesAreSignalledInOrder) {
  SyncTable sync;
  const uint32_t object = sync.Create(false);
  const auto one = std::make_shared<Fence>(), two = std::make_shared<Fence>();
  sync.Attach(object, 5, one);
  sync.Attach(object, 9, two);
  uint64_t point = 99;
  EXPECT_EQ(sync.Query(object, false, &point), 0);
  EXPECT_EQ(point, 0u);
  EXPECT_EQ(sync.Query(object, true, &point), 0);
  EXPECT_EQ(point, 9u);
  sync.Signal(two);  // not yet reached: the one before is not signalled
  EXPECT_EQ(sync.Query(object, false, &point), 0);
  EXPECT_EQ(point, 0u);
  EXPECT_EQ(WaitFor(sync, {{object, 9}}, kAll), ETIME);
  EXPECT_EQ(WaitFor(sync, {{object, 3}}, kAll), ETIME);
  sync.Signal(one);
  EXPECT_EQ(WaitFor(sync, {{object, 3}}, kAll), 0);
  EXPECT_EQ(WaitFor(sync, {{object, 9}}, kAll), 0);
  EXPECT_EQ(sync.Query(object, false, &point), 0);
  EXPECT_EQ(point, 9u);
  EXPECT_EQ(WaitFor(sync, {{object, 10}}, kAll), EINVAL);
  EXPECT_EQ(WaitFor(sync, {{object, 10}}, kLater), ETIME);
}

TEST(SyncTest, TheHostSignalsPoints) {
  SyncTable sync;
  const uint32_t object = sync.Create(false);
  EXPECT_EQ(sync.Signal(object, 7), 0);
  uint64_t point = 0;
  EXPECT_EQ(sync.Query(object, false, &point), 0);
  EXPECT_EQ(point, 7u);
}

TEST(SyncTest, WaitsForAnyTellWhich) {
  SyncTable sync;
  const uint32_t a = sync.Create(false), b = sync.Create(true);
  uint32_t first = 99;
  EXPECT_EQ(WaitFor(sync, {{a, 0}, {b, 0}}, {.wait_for_submit = true}, 0, &first), 0);
  EXPECT_EQ(first, 1u);
  EXPECT_EQ(WaitFor(sync, {{a, 0}, {b, 0}}, kLater), ETIME);
}

TEST(SyncTest, AWaiterSeesWhatAnotherThreadSubmitsAndSignals) {
  SyncTable sync;
  const uint32_t object = sync.Create(false);
  const auto fence = std::make_shared<Fence>();
  std::thread other([&] {
    sync.Attach(object, 1, fence);
    sync.Signal(fence);
  });
  EXPECT_EQ(sync.Wait(std::vector<SyncTable::WaitFor>{{object, 1}}, kLater, INT64_MAX, nullptr), 0);
  other.join();
}

TEST(SyncTest, TransfersFencesBetweenObjects) {
  SyncTable sync;
  const uint32_t from = sync.Create(false), to = sync.Create(false);
  const auto fence = std::make_shared<Fence>();
  EXPECT_EQ(sync.Transfer(to, 3, from, 0, false), EINVAL);
  sync.Attach(from, 0, fence);
  EXPECT_EQ(sync.Transfer(to, 3, from, 0, false), 0);
  EXPECT_EQ(WaitFor(sync, {{to, 3}}, kAll), ETIME);
  sync.Signal(fence);
  EXPECT_EQ(WaitFor(sync, {{to, 3}}, kAll), 0);
}

TEST(SyncTest, NamesUnknownObjects) {
  SyncTable sync;
  uint64_t point;
  FencePtr fence;
  EXPECT_EQ(sync.Destroy(1), ENOENT);
  EXPECT_EQ(sync.Query(1, false, &point), ENOENT);
  EXPECT_EQ(sync.Signal(1, 1), ENOENT);
  EXPECT_EQ(sync.Reset(std::vector<uint32_t>{1}), ENOENT);
  EXPECT_EQ(sync.Find(1, 0, true, DeadlineIn(0), &fence), ENOENT);
  EXPECT_EQ(WaitFor(sync, {{1, 0}}, kLater), ENOENT);
}

}  // namespace
}  // namespace tandem::rdna
