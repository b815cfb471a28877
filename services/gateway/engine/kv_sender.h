// An engine's side of hand-overs that go (kv_hand_over.h): which of its sequences' blocks are read.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "services/gateway/engine/kv_hand_over.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/scheduler/scheduler.h"

namespace tandem::gateway {

// Single-thread (the engine's), but for bytes.
class KvSender {
 public:
  // Finds a receiver; false: there is none now.
  using Offer = std::function<bool(std::shared_ptr<KvHandOver>)>;

  // Borrowed; must outlive this.
  KvSender(Executor& executor, Scheduler& scheduler) : executor_(executor), scheduler_(scheduler) {}
  ~KvSender() { AbandonAll(); }

  // Offers the KV of a sequence, unless that was done: of its prompt, or of all tokens that it has.
  // Offers that fail are made again after a pause.
  void OfferOnce(uint64_t request, const std::string& scope, uint32_t prompt_tokens, absl::Time now,
                 const Offer& offer);
  // Those whose KV has arrived: the sequences may go.
  std::vector<uint64_t> Arrived() const;
  // Hand-overs that the receivers have given up are forgotten.
  void Turn(absl::Time now);
  // Whether blocks can be read that a receiver waits for.
  bool copy_due() { return FindDue() != nullptr; }
  // Reads as many of them as the executor's area takes.  UNAVAILABLE: a worker is lost.
  // REQUIRES copy_due and no step under way.
  absl::Status CopyOnce();
  // The hand-over that a sequence goes with, which is forgotten here; null: none.
  std::shared_ptr<KvHandOver> TakeFor(uint64_t request);
  // The sequence has ended, or goes on without its KV.
  void Abandon(uint64_t request);
  void AbandonAll();

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct Outgoing {
    std::shared_ptr<KvHandOver> hand_over;  // null: nobody wanted it
    bool begun = false;                     // it has been accepted
    uint32_t next_block = 0;                // the first that has not been read
    uint64_t bytes = 0;                     // that were read
    absl::Duration copying;                 // in CopyOnce
    absl::Time offered;
    absl::Time again;  // where there is none: when to offer it again
  };
  static void Begin(Outgoing& outgoing, uint32_t num_blocks);
  Outgoing* FindDue();
  void GiveUp(uint64_t request, Outgoing& outgoing, absl::Time now);

  Executor& executor_;                     // Borrowed.
  Scheduler& scheduler_;                   // Borrowed.
  std::map<uint64_t, Outgoing> outgoing_;  // by request
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace tandem::gateway
