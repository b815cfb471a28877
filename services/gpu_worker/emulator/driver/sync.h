// Fences, and the synchronisation objects that hold them: the kernel's syncobjs, binary and with a
// timeline.
//
//   submission --signals--> Fence <--held by-- syncobj point <--waited for-- host, submissions
//
// A binary syncobj is one with a fence at point 0.  A timeline is a chain: a point is signalled when
// it and all points below it are.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace tandem::rdna {

struct Fence {
  bool signalled = false;
};
using FencePtr = std::shared_ptr<Fence>;  // shared by the queue that signals it and those who wait

// Absolute, nanoseconds of CLOCK_MONOTONIC.
using Deadline = int64_t;

// Thread-safe.  Functions that can fail return 0 or a positive errno: ENOENT for an unknown handle,
// EINVAL for a wait for what was not submitted, ETIME.
class SyncTable {
 public:
  uint32_t Create(bool signalled);
  int Destroy(uint32_t handle);
  int Reset(std::span<const uint32_t> handles);
  // Point 0: the object becomes binary.
  int Attach(uint32_t handle, uint64_t point, FencePtr fence);
  int Signal(uint32_t handle, uint64_t point);
  int Transfer(uint32_t to, uint64_t to_point, uint32_t from, uint64_t from_point,
               bool wait_for_submit);
  // The last point that was signalled; with `submitted`, the last that has a fence.
  int Query(uint32_t handle, bool submitted, uint64_t* point) const;

  struct WaitFor {
    uint32_t handle;
    uint64_t point;
  };
  struct WaitHow {
    bool all = false;              // else any
    bool wait_for_submit = false;  // else EINVAL where no fence is there yet
    bool available = false;        // until there is a fence, not until it is signalled
  };
  // `first`: may be nullptr; the index of one that is done, if any was enough.
  int Wait(std::span<const WaitFor> objects, WaitHow how, Deadline deadline, uint32_t* first);
  // The fence of a point, for a submission to wait for; waits until `deadline` for there to be one.
  int Find(uint32_t handle, uint64_t point, bool wait_for_submit, Deadline deadline,
           FencePtr* fence);

  void Signal(const FencePtr& fence);
  // false: the deadline passed.
  bool Wait(const FencePtr& fence, Deadline deadline);

 private:
  struct Object {
    FencePtr binary;
    std::map<uint64_t, FencePtr> chain;  // points that are not yet signalled, or not seen to be
    uint64_t signalled = 0;              // all points up to here are
  };

  // What a waiter at `point` waits for: {there is one, it}.  No fence and true: it is signalled.
  static std::pair<bool, FencePtr> Lookup(Object& object, uint64_t point);
  static void Settle(Object& object);
  template <typename Ready>
  bool WaitUntil(std::unique_lock<std::mutex>& lock, Deadline deadline, const Ready& ready);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  mutable std::map<uint32_t, Object> objects_;
  uint32_t last_handle_ = 0;
};

Deadline DeadlineIn(int64_t milliseconds);

}  // namespace tandem::rdna
