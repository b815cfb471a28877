#include "services/gateway/scheduler/tenants.h"

#include <algorithm>
#include <tuple>

namespace tandem::gateway {
namespace {

// Tenants without sequences that are remembered.
constexpr size_t kMinRemembered = 64;

}  // namespace

Tenant* Tenants::Enter(const TenantRef& ref, uint64_t step_id) {
  std::unique_ptr<Tenant>& slot = tenants_[ref.name];
  if (slot == nullptr) {
    slot = std::make_unique<Tenant>();
    slot->name = ref.name;
  }
  Tenant& tenant = *slot;
  if (tenant.num_sequences > 0) active_weight_ -= tenant.weight;
  tenant.weight = std::max(ref.weight, 1u);  // the key file may have changed
  active_weight_ += tenant.weight;
  if (tenant.num_sequences++ == 0) {
    ++num_active_;
    tenant.virtual_time = std::max(tenant.virtual_time, now_);
    tenant.last_turn = step_id;
  }
  return &tenant;
}

void Tenants::Leave(Tenant* tenant) {
  if (--tenant->num_sequences > 0) return;
  --num_active_;
  active_weight_ -= tenant->weight;
  if (tenants_.size() > 2 * num_active_ + kMinRemembered) Forget();
}

// An idle tenant that is not ahead of the others and has no places kept equals a new one.
void Tenants::Forget() {
  std::erase_if(tenants_, [this](const auto& entry) {
    const Tenant& tenant = *entry.second;
    return tenant.num_sequences == 0 && (tenant.virtual_time <= now_ || num_active_ == 0) &&
           tenant.peak_step + kKeepSteps < last_step_id_;
  });
  // Clients come and go faster than steps: forget those with the least state.
  while (tenants_.size() > 16 * (num_active_ + kMinRemembered)) {
    const auto least =
        std::min_element(tenants_.begin(), tenants_.end(), [](const auto& a, const auto& b) {
          const auto rank = [](const Tenant& tenant) {
            return std::make_tuple(tenant.num_sequences > 0, tenant.virtual_time);
          };
          return rank(*a.second) < rank(*b.second);
        });
    tenants_.erase(least);
  }
}

void Tenants::Started(Tenant& tenant, uint64_t step_id) {
  if (++tenant.num_running < tenant.peak_running) return;
  tenant.peak_running = tenant.num_running;
  tenant.peak_step = step_id;
}

const std::vector<Tenant*>& Tenants::InTurn() {
  in_turn_.clear();
  for (const auto& [name, tenant] : tenants_) {
    if (tenant->num_sequences == 0) continue;
    tenant->wants_rows = false;
    in_turn_.push_back(tenant.get());
  }
  std::sort(in_turn_.begin(), in_turn_.end(), [](const Tenant* a, const Tenant* b) {
    const auto rank = [](const Tenant& tenant) {
      return std::tie(tenant.virtual_time, tenant.last_turn, tenant.num_running, tenant.name);
    };
    return rank(*a) < rank(*b);
  });
  return in_turn_;
}

void Tenants::Charge(Tenant& tenant, uint32_t num_rows, uint64_t step_id) {
  tenant.virtual_time += static_cast<double>(num_rows) / tenant.weight;
  tenant.last_turn = step_id;
}

void Tenants::EndTurn(uint64_t step_id) {
  last_step_id_ = step_id;
  const auto wants = [](const Tenant& tenant) {
    return tenant.wants_rows || (tenant.num_running == 0 && !tenant.waiting.empty());
  };
  double least = 0.0, most = 0.0;
  bool any = false;
  for (const Tenant* tenant : in_turn_) {
    if (wants(*tenant)) {
      least = any ? std::min(least, tenant->virtual_time) : tenant->virtual_time;
      any = true;
    }
    most = std::max(most, tenant->virtual_time);
  }
  now_ = std::max(now_, any ? least : most);
  for (Tenant* tenant : in_turn_) {
    if (!wants(*tenant)) tenant->virtual_time = std::max(tenant->virtual_time, now_);
    if (tenant->num_running >= tenant->peak_running) {
      tenant->peak_running = tenant->num_running;
      tenant->peak_step = step_id;
    } else if (tenant->peak_step + kKeepSteps < step_id) {
      tenant->peak_running = tenant->num_running;
    }
  }
}

uint32_t Tenants::NumKeptFromOthers(const Tenant& tenant, uint32_t max_running) const {
  const auto keeps = [this](const Tenant& other) {
    return other.peak_step + kKeepSteps >= last_step_id_ && other.peak_running > 0;
  };
  uint64_t weight = 0;
  for (const auto& [name, other] : tenants_) {
    if (other->num_sequences > 0 || keeps(*other)) weight += other->weight;
  }
  uint64_t kept = 0;
  for (const auto& [name, other] : tenants_) {
    if (other.get() == &tenant || !keeps(*other)) continue;
    const uint64_t share = uint64_t{max_running} * other->weight / weight;
    const uint64_t own = std::min<uint64_t>(other->peak_running, share);
    kept += own > other->num_running ? own - other->num_running : 0;
  }
  return static_cast<uint32_t>(kept);
}

}  // namespace tandem::gateway
