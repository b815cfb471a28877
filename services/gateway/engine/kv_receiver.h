// An engine's side of hand-overs that come (kv_hand_over.h): imports of its scheduler, filled by its
// executor.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/common/base/mutex.h"
#include "services/common/step/kv_copy.h"
#include "services/gateway/engine/kv_hand_over.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {

// Expect, num_pending and bytes from any thread, all else from the engine's.
class KvReceiver {
 public:
  // Borrowed; must outlive this.  `places`: as Update's, at first.  `wake`: ends the engine's wait for
  // something to do; from any thread.
  KvReceiver(Executor& executor, Scheduler& scheduler, uint32_t places, std::function<void()> wake);
  // Gives all up.
  ~KvReceiver() { AbandonAll(); }

  // A hand-over will come.  False: there is no place for its request, or no more are taken.
  bool Expect(std::shared_ptr<KvHandOver> hand_over);
  // Hand-overs whose requests have not come.
  uint32_t num_pending() const;

  // Accepts the hand-overs expected, takes what has come, and ends those that are over.  `places`:
  // sequences that could run beside those there are.  True: blocks are held no longer.
  bool Update(uint32_t places, absl::Time now);
  // Whether blocks have come, and there is room for them.
  bool copy_due() const { return next_ != nullptr; }
  // Copies as many of them as the executor's area takes.  UNAVAILABLE: a worker is lost.
  // REQUIRES copy_due and no step under way.
  absl::Status CopyOnce();
  // The request of a hand-over has come.
  void Adopted(uint64_t request);
  // The workers and their KV are lost.
  void AbandonAll();
  // No more are taken.
  void Stop();

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Incoming {
    std::shared_ptr<KvHandOver> hand_over;
    std::optional<KvPiece> piece;
    uint32_t num_written = 0;  // blocks of the piece
    uint32_t num_blocks = 0;   // blocks of the piece that the import has room for
    ImportedBlocks blocks;     // of the last KvImports::Extend
    absl::Time piece_taken;
    absl::Duration filling, calling;  // of CopyOnce: in FillArea, in the executor
  };
  bool Accept(KvHandOver& hand_over);
  // Takes a piece and finds room for its blocks; false: it is given up.
  bool Prepare(Incoming& incoming, absl::Time now);
  // Puts the next `count` blocks of the piece into the area.
  void FillArea(const Incoming& incoming, uint32_t count);
  void Drop(Incoming& incoming);

  Executor& executor_;    // Borrowed.
  Scheduler& scheduler_;  // Borrowed.
  const std::function<void()> wake_;
  std::list<Incoming> incoming_;  // few
  Incoming* next_ = nullptr;      // the next to copy
  std::atomic<uint64_t> bytes_{0};

  mutable Mutex mutex_;
  uint32_t places_ ABSL_GUARDED_BY(mutex_);
  uint32_t num_incoming_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<KvHandOver>> expected_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::gateway
