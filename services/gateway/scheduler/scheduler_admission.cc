// Admission: which sequences leave the waiting queue.
#include "services/gateway/scheduler/scheduler.h"

#include <cstddef>

namespace tandem::gateway {

bool Scheduler::AdmitWaiting(Tenant& tenant, int32_t priority) {
  size_t next = 0;
  while (next < tenant.waiting.size()) {
    Sequence& sequence = *tenant.waiting[next];
    if (sequence.priority > priority) return true;
    // Preempted while the sampler chooses its token: wait for that token.
    if (sequence.num_known < sequence.tokens.size() || sequence.awaits_token()) return true;
    const bool has_place = running_.HasPlace(tenant);
    if (sequence.priority < priority || (has_place && running_.IsBeingComputed(sequence))) {
      if (sequence.priority == priority) running_.HoldBack(sequence);
      ++next;
      continue;
    }
    const bool fits = has_place && (running_.Fits(sequence) ||
                                    (running_.ReleaseUnpublished() && running_.Fits(sequence)) ||
                                    DropImportsFor(sequence));
    // Where nothing runs, its place is kept for another tenant: that one goes on.
    if (!fits && !MakeWay(sequence)) return running_.empty();
    tenant.waiting.erase(tenant.waiting.begin() + static_cast<std::ptrdiff_t>(next));
    running_.Add(sequence);
    imports_.End(sequence.id);
    PlanRows(sequence);
  }
  return true;
}

bool Scheduler::DropImportsFor(const Sequence& sequence) {
  const auto gives_way = [&](uint64_t id) {
    const Sequence* const other = Find(id);
    if (other == nullptr || other->priority > sequence.priority) return true;
    return &other->tenant == &sequence.tenant && sequence.WaitsBefore(*other);
  };
  if (!running_.Fits(sequence, imports_.NumHeldOnlyBy(gives_way))) return false;
  while (imports_.DropLatest(gives_way)) {
    if (running_.Fits(sequence)) return true;
  }
  return false;
}

bool Scheduler::MakeWay(const Sequence& sequence) {
  if (!running_.CouldMakeWayFor(sequence)) return false;
  while (Sequence* const victim = running_.VictimFor(sequence)) {
    ++counters_.fair_preemptions;
    Preempt(*victim);
    if (running_.HasAnyPlace() && running_.Fits(sequence)) return true;
  }
  return false;
}

}  // namespace tandem::gateway
