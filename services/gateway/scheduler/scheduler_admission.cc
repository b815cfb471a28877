// Admission: which sequences leave the waiting queue.
#include "services/gateway/scheduler/scheduler.h"

#include <cstddef>

namespace tandem::gateway {

void Scheduler::AdmitWaiting(Tenant& tenant) {
  size_t num_held_back = 0;
  while (num_held_back < tenant.waiting.size()) {
    Sequence& sequence = *tenant.waiting[num_held_back];
    // Preempted while the sampler chooses its token: wait for that token.
    if (sequence.num_known < sequence.tokens.size() || sequence.awaits_token()) return;
    const bool has_place = running_.HasPlace(tenant);
    if (has_place && running_.IsBeingComputed(sequence)) {
      running_.HoldBack(sequence);
      ++num_held_back;
      continue;
    }
    const bool fits = has_place && (running_.Fits(sequence) ||
                                    (running_.ReleaseUnpublished() && running_.Fits(sequence)));
    if (!fits && !MakeWay(sequence)) return;
    tenant.waiting.erase(tenant.waiting.begin() + static_cast<std::ptrdiff_t>(num_held_back));
    running_.Add(sequence);
    PlanRows(sequence);
  }
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
