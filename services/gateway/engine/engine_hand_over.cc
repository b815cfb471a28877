// Engine: requests that go on in another engine with their KV, and KV that comes (kv_hand_over.h).
#include <algorithm>

#include "absl/time/clock.h"
#include "services/gateway/engine/engine.h"

namespace tandem::gateway {
namespace {

// Copies between two steps take at most this share of a step's time, and may take kLeastCopying.
constexpr double kCopyShare = 0.25;
constexpr absl::Duration kLeastCopying = absl::Milliseconds(2);

}  // namespace

uint32_t Engine::FreePlaces() const {
  const SchedulerLoad load = scheduler_->load();
  const uint32_t most = std::min(options_.max_sequences, executor_->limits().max_sequences);
  return most - std::min(most, load.running + load.waiting);
}

void Engine::HandOver(absl::Time now) {
  if (copies_kv_.load(std::memory_order_relaxed) && receiver_.Update(FreePlaces(), now)) Publish();
  if (!hands_over_.load(std::memory_order_relaxed)) return;
  if (!executor_->KvArea().empty()) OfferKv(now);
  sender_.Update(now);
  bool any_moved = false;
  for (const uint64_t id : sender_.Arrived()) {
    const RequestRun* const run = FindRun(id);
    // The first token is decided where the prompt was computed.
    if (run == nullptr || run->num_decided() == 0) continue;
    scheduler_->AwaitTake(id, true);
    if (!run->has_work && scheduler_->CanTake(id) && MoveAway(id)) {
      moved_away_.fetch_add(1, std::memory_order_relaxed);
      any_moved = true;
    }
  }
  if (any_moved) Publish();
}

void Engine::OfferKv(absl::Time now) {
  for (const auto& [id, run] : runs_) {
    if (!sender_.ShouldOffer(id, now)) continue;
    const EngineRequest& request = run->request();
    // Without a prefix cache the KV would not be found.
    if (request.embedding || !request.use_prefix_cache || !options_.prefix_cache) continue;
    // It ends where its prompt is computed.
    if (request.max_tokens <= 1) continue;
    const PublishedPrefix published = scheduler_->Published(id);
    if (published.tokens.empty()) continue;
    if (published.blocks[kGlobalGroup].empty() && run->num_decided() == 0) continue;
    if (!options_.neighbours->ready()) return;
    sender_.OfferKv(id, PrefixScopeOf(request), static_cast<uint32_t>(request.prompt.size()), now,
                    [this, &request](const std::shared_ptr<KvHandOver>& hand_over) {
                      return options_.neighbours->Offer(request, hand_over);
                    });
  }
}

void Engine::RunCopies() {
  const absl::Time begin = absl::Now();
  const absl::Time until = begin + std::max(kLeastCopying, kCopyShare * last_step_took_);
  do {
    absl::Status copied = receiver_.copy_due() ? receiver_.CopyOnce() : sender_.CopyOnce();
    if (!copied.ok()) return recovery_.MarkLost(std::move(copied));
    if (receiver_.Update(FreePlaces(), absl::Now())) Publish();
  } while (CopiesDue() && absl::Now() < until);
}

void Engine::TellKept(uint64_t id, const EngineRequest& request) {
  const PublishedPrefix published = scheduler_->Published(id);
  // Not the executor's limits: it may be recovering, on another thread.
  const size_t num_kept = published.blocks[kGlobalGroup].size() * scheduler_->pools().block_tokens;
  // Of the prompt they know.
  if (num_kept <= request.prompt.size()) return;
  options_.neighbours->Keeps(request, published.tokens.first(num_kept));
}

void Engine::AbandonHandOvers() {
  sender_.AbandonAll(absl::Now());
  receiver_.AbandonAll();
}

}  // namespace tandem::gateway
