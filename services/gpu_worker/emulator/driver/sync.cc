#include "services/gpu_worker/emulator/driver/sync.h"

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace tandem::rdna {
namespace {

// Steady clock and CLOCK_MONOTONIC are one on Linux.
using Clock = std::chrono::steady_clock;

FencePtr SignalledFence() { return std::make_shared<Fence>(Fence{.signalled = true}); }

}  // namespace

Deadline DeadlineIn(int64_t milliseconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
             .count() +
         milliseconds * 1'000'000;
}

template <typename Ready>
bool SyncTable::WaitUntil(std::unique_lock<std::mutex>& lock, Deadline deadline,
                          const Ready& ready) {
  // Those far away would overflow in the library.
  if (deadline > DeadlineIn(int64_t{365} * 24 * 3600 * 1000)) {
    changed_.wait(lock, ready);
    return true;
  }
  return changed_.wait_until(lock, Clock::time_point(std::chrono::nanoseconds(deadline)), ready);
}

uint32_t SyncTable::Create(bool signalled) {
  const std::scoped_lock lock(mutex_);
  objects_[++last_handle_] = {.binary = signalled ? SignalledFence() : nullptr};
  return last_handle_;
}

int SyncTable::Destroy(uint32_t handle) {
  const std::scoped_lock lock(mutex_);
  return objects_.erase(handle) != 0 ? 0 : ENOENT;
}

int SyncTable::Reset(std::span<const uint32_t> handles) {
  const std::scoped_lock lock(mutex_);
  for (const uint32_t handle : handles) {
    const auto it = objects_.find(handle);
    if (it == objects_.end()) return ENOENT;
    it->second = {};
  }
  return 0;
}

int SyncTable::Attach(uint32_t handle, uint64_t point, FencePtr fence) {
  const std::scoped_lock lock(mutex_);
  const auto it = objects_.find(handle);
  if (it == objects_.end()) return ENOENT;
  Object& object = it->second;
  if (point == 0) {
    object = {.binary = std::move(fence)};
  } else {
    object.chain[point] = std::move(fence);
  }
  changed_.notify_all();
  return 0;
}

int SyncTable::Signal(uint32_t handle, uint64_t point) {
  return Attach(handle, point, SignalledFence());
}

int SyncTable::Transfer(uint32_t to, uint64_t to_point, uint32_t from, uint64_t from_point,
                        bool wait_for_submit) {
  FencePtr fence;
  if (const int error = Find(from, from_point, wait_for_submit, DeadlineIn(5000), &fence)) {
    return error;
  }
  return Attach(to, to_point, std::move(fence));
}

void SyncTable::Settle(Object& object) {
  while (!object.chain.empty() && object.chain.begin()->second->signalled) {
    object.signalled = std::max(object.signalled, object.chain.begin()->first);
    object.chain.erase(object.chain.begin());
  }
}

std::pair<bool, FencePtr> SyncTable::Lookup(Object& object, uint64_t point) {
  if (point == 0) {
    if (object.binary != nullptr) {
      return {true, object.binary->signalled ? nullptr : object.binary};
    }
    Settle(object);
    if (!object.chain.empty()) return {true, object.chain.rbegin()->second};
    return {object.signalled != 0, nullptr};
  }
  Settle(object);
  if (point <= object.signalled) return {true, nullptr};
  const auto it = object.chain.lower_bound(point);
  if (it == object.chain.end()) return {false, nullptr};
  return {true, it->second};
}

int SyncTable::Query(uint32_t handle, bool submitted, uint64_t* point) const {
  const std::scoped_lock lock(mutex_);
  const auto it = objects_.find(handle);
  if (it == objects_.end()) return ENOENT;
  Object& object = it->second;
  Settle(object);
  const bool further = submitted && !object.chain.empty();
  *point = further ? object.chain.rbegin()->first : object.signalled;
  return 0;
}

int SyncTable::Wait(std::span<const WaitFor> waits, WaitHow how, Deadline deadline,
                    uint32_t* first) {
  std::unique_lock lock(mutex_);
  int error = 0;
  const auto ready = [&] {
    size_t done = 0;
    for (size_t i = 0; i < waits.size(); ++i) {
      const auto it = objects_.find(waits[i].handle);
      if (it == objects_.end()) {
        error = ENOENT;
        return true;
      }
      const auto [submitted, fence] = Lookup(it->second, waits[i].point);
      if (!submitted && !how.wait_for_submit && !how.available) {
        error = EINVAL;
        return true;
      }
      // A point of a timeline waits for those below it: with the fence signalled the chain decides.
      const bool reached = submitted && (how.available || fence == nullptr ||
                                         (waits[i].point == 0 && fence->signalled));
      if (!reached) continue;
      ++done;
      if (!how.all) {
        if (first != nullptr) *first = static_cast<uint32_t>(i);
        return true;
      }
    }
    return done == waits.size();
  };
  if (!WaitUntil(lock, deadline, ready)) return ETIME;
  return error;
}

int SyncTable::Find(uint32_t handle, uint64_t point, bool wait_for_submit, Deadline deadline,
                    FencePtr* fence) {
  std::unique_lock lock(mutex_);
  int error = EINVAL;
  const auto ready = [&] {
    const auto it = objects_.find(handle);
    if (it == objects_.end()) {
      error = ENOENT;
      return true;
    }
    const auto [submitted, found] = Lookup(it->second, point);
    if (!submitted) return false;
    *fence = found != nullptr ? found : SignalledFence();
    error = 0;
    return true;
  };
  if (!wait_for_submit) {
    ready();
    return error;
  }
  return WaitUntil(lock, deadline, ready) ? error : ETIME;
}

void SyncTable::Signal(const FencePtr& fence) {
  const std::scoped_lock lock(mutex_);
  fence->signalled = true;
  changed_.notify_all();
}

bool SyncTable::Wait(const FencePtr& fence, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return WaitUntil(lock, deadline, [&] { return fence->signalled; });
}

}  // namespace tandem::rdna
