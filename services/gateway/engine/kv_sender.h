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
  // Finds a receiver that may take it; false: nobody does.
  using Offer = std::function<bool(const std::shared_ptr<KvHandOver>&)>;

  // Borrowed; must outlive this.
  KvSender(Executor& executor, Scheduler& scheduler) : executor_(executor), scheduler_(scheduler) {}
  ~KvSender() { AbandonAll(absl::InfiniteFuture()); }

  // Whether the KV of a sequence should be offered now: offers that fail are made again after pauses
  // that grow, and at once where a receiver refuses, to the others.
  bool ShouldOffer(uint64_t request, absl::Time now) const;
  // Offers it: of its prompt, or of all tokens that it has.  REQUIRES ShouldOffer.
  void OfferKv(uint64_t request, const std::string& scope, uint32_t prompt_tokens, absl::Time now,
               const Offer& offer);
  // Looks what the receivers have said.
  void Update(absl::Time now);
  // Those whose KV has arrived: the sequences may go.
  std::vector<uint64_t> Arrived() const;
  // The hand-over that a sequence goes with, or null.
  std::shared_ptr<KvHandOver> Find(uint64_t request) const;
  // The sequence has gone with it.
  void Moved(uint64_t request);
  // Whether blocks can be read that a receiver waits for.
  bool copy_due() { return FindDue() != nullptr; }
  // Reads as many of them as the executor's area takes.  UNAVAILABLE: a worker is lost; the KV of this
  // sequence is not offered again.  REQUIRES copy_due and no step under way.
  absl::Status CopyOnce();
  // The sequence has ended, or has gone without its KV.
  void Forget(uint64_t request, KvHandOver::End why);
  // It stays, and is offered again later.
  void Abandon(uint64_t request, absl::Time now);
  void AbandonAll(absl::Time now);

  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  // Pieces that wait for all receivers together, each of up to an area.
  static constexpr size_t kMostWaiting = 4;

  struct Outgoing {
    std::shared_ptr<KvHandOver> hand_over;  // null: to be offered at `again`
    absl::Time again = absl::InfinitePast();
    absl::Duration pause;              // before `again`
    std::vector<uint32_t> refused_by;  // replicas
    bool accepted = false;             // next_block is known
    uint32_t next_block = 0;           // the first that has not been read
    uint64_t bytes = 0;                // that were read
    absl::Duration copying;            // in CopyOnce
    absl::Duration calling;            // of it, in the executor
    absl::Time offered;
  };
  Outgoing* FindDue();
  void Abandon(uint64_t request, Outgoing& outgoing, absl::Time now, KvHandOver::End why);

  Executor& executor_;    // Borrowed.
  Scheduler& scheduler_;  // Borrowed.
  const std::shared_ptr<KvBuffers> buffers_ = std::make_shared<KvBuffers>();
  std::map<uint64_t, Outgoing> outgoing_;  // by request
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace tandem::gateway
