// The tenants that share the device, and their turns.
//
// A tenant is one API key, or one client if the gateway has no keys.  Each has a *virtual time*:
// the number of rows computed for it, divided by its weight.  The tenant with the least virtual
// time goes first (start-time fair queueing, Goyal, Vin and Cheng 1996):
//
//   tenant     virtual time               next step
//   A          700 ----------------+      rows of B, then rows of A
//   B          512 -----+          |
//   (now: 512)          ^ min      ^ waits until B has caught up
//
// `now` is the least virtual time of the tenants that want rows, and never falls.  A tenant that
// stops wanting rows, or comes back, is set to at least `now`: idle time earns no credit.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "services/common/step/step_batch.h"

namespace tandem::gateway {

struct Sequence;

// The tenant of a request.
struct TenantRef {
  std::string name;     // empty: all requests without a name are one tenant
  uint32_t weight = 1;  // of its share; at least 1
};

struct Tenant {
  std::string name;
  uint32_t weight = 1;
  double virtual_time = 0.0;
  uint64_t last_turn = 0;         // id of the last step with rows of it, or of its arrival
  std::deque<Sequence*> waiting;  // by priority, then by arrival
  uint32_t num_sequences = 0;     // waiting and running
  uint32_t num_running = 0;
  bool wants_rows = false;  // rows of it did not fit into the step being planned
  // Blocks that its running sequences hold or will need, by KvGroup.
  uint64_t blocks[kNumKvGroups] = {};

  // Most sequences that ran at once recently.  Other tenants leave it that many places.
  uint32_t peak_running = 0;
  uint64_t peak_step = 0;  // id of the last step with that many
};

// Single-thread.
class Tenants {
 public:
  // Steps for which a tenant's places are kept after use.  So a client that sends one short request
  // after another finds a place free and does not preempt for each request.
  static constexpr uint64_t kKeepSteps = 64;

  // Adds a sequence to its tenant, and creates the tenant if the name is new.  The pointer is valid
  // until the tenant's last sequence leaves.
  Tenant* Enter(const TenantRef& ref, uint64_t step_id);
  void Leave(Tenant* tenant);
  // A sequence of the tenant starts or stops running.
  void Started(Tenant& tenant, uint64_t step_id);
  void Stopped(Tenant& tenant) { --tenant.num_running; }

  // The tenants with sequences, next turn first.  Valid until Enter or Leave.
  const std::vector<Tenant*>& InTurn();
  uint32_t num_active() const { return num_active_; }
  // The fraction of the device that a tenant is entitled to while all tenants with sequences want
  // more.
  double ShareOf(const Tenant& tenant) const {
    return static_cast<double>(tenant.weight) / static_cast<double>(active_weight_);
  }

  // `num_rows` rows of the tenant are in step `step_id`.
  void Charge(Tenant& tenant, uint32_t num_rows, uint64_t step_id);
  // The step is planned: advances `now`, and tenants that want no more rows to it.
  void EndTurn(uint64_t step_id);

  // How many of `max_running` places are free but kept for tenants other than `tenant`.
  uint32_t NumKeptFromOthers(const Tenant& tenant, uint32_t max_running) const;

 private:
  void Forget();

  std::unordered_map<std::string, std::unique_ptr<Tenant>> tenants_;
  std::vector<Tenant*> in_turn_;
  uint32_t num_active_ = 0;
  uint64_t active_weight_ = 0;
  double now_ = 0.0;
  uint64_t last_step_id_ = 0;
};

}  // namespace tandem::gateway
