#include "services/worker_host/hosted_plans.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/worker_convert.h"
#include "services/worker_host/driver_guard.h"
#include "services/worker_host/plan_memory.h"

namespace tandem {
namespace {

constexpr size_t kMaxPlanIdBytes = 64;

}  // namespace

HostedPlans::HostedPlans(Worker& worker, WeightSource& source)
    : worker_(worker),
      source_(source),
      holder_name_(absl::StrFormat("%s pid %d", worker.description().name, ::getpid())) {}

absl::Status HostedPlans::CheckHolder(const std::string& plan_token) {
  for (const auto& entry : entries_) {
    const PlanHolder& holder = entry->holder;
    if (entry->plan == nullptr || holder.token == plan_token) continue;
    if (holder.loader_target.empty()) continue;
    const auto region =
        source_.FetchExchange(holder.loader_target, holder.lease_token, holder.region_id);
    if (!region.ok()) continue;
    return absl::UnavailableError(absl::StrFormat(
        "%s runs a plan of another gateway (epoch %d), whose lease is alive: stop that "
        "gateway, or give this one a worker of its own",
        worker_.description().name, entry->epoch()));
  }
  return absl::OkStatus();
}

absl::StatusOr<HostedPlan*> HostedPlans::Entry(const std::string& id) {
  // It goes to logs and to labels of metrics.
  const bool is_plain = std::ranges::all_of(id, [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.';
  });
  if (!is_plain || id.size() > kMaxPlanIdBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("plan: plan_id of %d bytes, must be at most %d of letters, digits, '-', "
                        "'_' and '.'",
                        id.size(), kMaxPlanIdBytes));
  }
  bool taken[kMaxPlans] = {};
  for (const auto& entry : entries_) {
    if (entry->id == id) return entry.get();
  }
  // Those that could not be loaded are kept for another attempt while there is room.
  if (entries_.size() == kMaxPlans) {
    std::erase_if(entries_, [](const auto& entry) { return entry->plan == nullptr; });
  }
  for (const auto& entry : entries_) taken[entry->number] = true;
  const auto* const free = std::ranges::find(taken, false);
  if (free == std::end(taken)) {
    return absl::ResourceExhaustedError(absl::StrFormat("%s holds %d plans, the most it takes",
                                                        worker_.description().name, kMaxPlans));
  }
  entries_.push_back(std::make_unique<HostedPlan>());
  entries_.back()->id = id;
  entries_.back()->number = static_cast<uint32_t>(free - taken);
  return entries_.back().get();
}

absl::StatusOr<const HostedPlan*> HostedPlans::Load(const worker::v1::LoadPlanRequest& request,
                                                    const Progress& progress) {
  const absl::Time start = absl::Now();
  std::erase_if(entries_, [&](const std::unique_ptr<HostedPlan>& entry) {
    if (entry->holder.token == request.plan_token()) return false;
    Drop(*entry);
    return true;
  });
  TANDEM_ASSIGN_OR_RETURN(HostedPlan* const entry, Entry(request.plan_id()));
  entry->plan.reset();
  entry->yields = request.yields();
  entry->holder = {.token = request.plan_token()};
  if (!request.inline_activations()) {
    entry->holder.loader_target = request.loader_target();
    entry->holder.lease_token = request.exchange_lease_token();
    entry->holder.region_id = request.exchange_region_id();
  }
  absl::Status status = LoadOnce(request, *entry, progress);
  if (absl::IsResourceExhausted(status) && !entry->yields && DropYielding(*entry)) {
    status = LoadOnce(request, *entry, progress);
  }
  if (status.ok()) {
    entry->report.set_load_seconds(absl::ToDoubleSeconds(absl::Now() - start));
    return entry;
  }
  Drop(*entry);
  return status;
}

absl::Status HostedPlans::LoadOnce(const worker::v1::LoadPlanRequest& request, HostedPlan& entry,
                                   const Progress& progress) {
  return GuardDriver("loading", [&]() -> absl::Status {
    TANDEM_RETURN_IF_ERROR(FetchWeights(request, entry, progress));
    UniqueFd exchange_fd;
    if (!request.inline_activations()) {
      TANDEM_ASSIGN_OR_RETURN(exchange_fd, source_.FetchExchange(request.loader_target(),
                                                                 request.exchange_lease_token(),
                                                                 request.exchange_region_id()));
    }
    TANDEM_ASSIGN_OR_RETURN(auto plan,
                            LoadedPlan::Create(request, entry.number, worker_.description(),
                                               entry.leased.weights, std::move(exchange_fd)));
    const ModelLoad load = plan->MakeLoad();
    entry.memory_bytes = PlanMemoryBytes(load, worker_.description());
    TANDEM_RETURN_IF_ERROR(AdmitMemory(entry, entry.memory_bytes));
    TANDEM_ASSIGN_OR_RETURN(
        const LoadReport loaded,
        worker_.Load(load, [&progress](double fraction, std::string_view phase) {
          progress(fraction, phase);
        }));
    entry.memory_bytes += CopiedWeightBytes(loaded, worker_.description());
    entry.costs.assign(load.segments.back().index + 1, SegmentCosts());
    for (const Segment& segment : load.segments) {
      entry.costs[segment.index] = SegmentCosts(segment, *load.weights, load.kv.dtype);
    }
    entry.plan = std::move(plan);
    entry.report = ToProto(loaded);
    return absl::OkStatus();
  });
}

absl::Status HostedPlans::FetchWeights(const worker::v1::LoadPlanRequest& request,
                                       HostedPlan& entry, const Progress& progress) {
  const auto is_of_model = [&request](const LeasedWeights& leased) {
    return leased.weights != nullptr && leased.weights->model_id() == request.model_id();
  };
  const bool same_model = is_of_model(entry.leased);
  if (same_model && source_.IsAlive(entry.leased)) return absl::OkStatus();
  if (entry.leased.weights != nullptr && !same_model) {
    worker_.Unload(entry.number);
    entry.leased = {};
  }
  for (const auto& other : entries_) {  // one lease for all plans of a model
    if (!is_of_model(other->leased) || !source_.IsAlive(other->leased)) continue;
    entry.leased = other->leased;
    return absl::OkStatus();
  }
  progress(0.0, "fetching weights");
  auto fetched =
      request.inline_activations()
          ? source_.FetchOwnWeights(request.model_id(), request.model_name(), holder_name_,
                                    progress)
          : source_.FetchWeights(request.loader_target(), request.model_id(), holder_name_);
  if (!fetched.ok()) {
    if (!same_model) return fetched.status();
    LogWarning("lease lost, going on with the weights as mapped",
               {{"reason", std::string(fetched.status().message())}});
    return absl::OkStatus();
  }
  entry.leased = *std::move(fetched);
  return absl::OkStatus();
}

absl::Status HostedPlans::AdmitMemory(const HostedPlan& entry, uint64_t bytes) const {
  const WorkerDescription& worker = worker_.description();
  uint64_t others = 0;
  for (const HostedPlan* plan : loaded()) {
    if (plan != &entry) others += plan->memory_bytes;
  }
  // One plan alone is the driver's to admit.
  if (others == 0 || worker.memory_available_bytes == 0) return absl::OkStatus();
  const uint64_t left =
      worker.memory_available_bytes - std::min(others, worker.memory_available_bytes);
  if (bytes <= left) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "plan \"%s\" needs %d MiB of %s; of %d MiB the %d other plans leave %d", entry.id,
      bytes >> 20, worker.name, worker.memory_available_bytes >> 20, size(), left >> 20));
}

bool HostedPlans::DropYielding(const HostedPlan& entry) {
  bool dropped = false;
  for (const auto& other : entries_) {
    if (other.get() == &entry || other->plan == nullptr || !other->yields) continue;
    LogWarning("plan dropped to make room", {{"plan", other->id}, {"for", entry.id}});
    Drop(*other);
    dropped = true;
  }
  return dropped;
}

void HostedPlans::Drop(HostedPlan& entry) {
  entry.plan.reset();
  entry.memory_bytes = 0;
  (void)GuardDriver("unloading", [&] {
    worker_.Unload(entry.number);
    return absl::OkStatus();
  });
}

absl::Status HostedPlans::Unload(const worker::v1::UnloadPlanRequest& request) {
  HostedPlan* const plan = Find(request.epoch());
  if (plan == nullptr) return UnknownEpoch("unload", request.epoch());
  if (request.plan_token() != plan->holder.token) {
    return absl::PermissionDeniedError(
        absl::StrFormat("the plan of epoch %d belongs to another gateway", request.epoch()));
  }
  Drop(*plan);
  std::erase_if(entries_, [plan](const auto& entry) { return entry.get() == plan; });
  return absl::OkStatus();
}

void HostedPlans::DropAll() {
  for (const auto& entry : entries_) Drop(*entry);
}

HostedPlan* HostedPlans::Find(uint64_t epoch) {
  for (const auto& entry : entries_) {
    if (entry->plan != nullptr && entry->epoch() == epoch) return entry.get();
  }
  return nullptr;
}

uint32_t HostedPlans::size() const {
  return static_cast<uint32_t>(
      std::ranges::count_if(entries_, [](const auto& entry) { return entry->plan != nullptr; }));
}

std::vector<const HostedPlan*> HostedPlans::loaded() const {
  std::vector<const HostedPlan*> plans;
  for (const auto& entry : entries_) {
    if (entry->plan != nullptr) plans.push_back(entry.get());
  }
  std::ranges::sort(plans, {}, &HostedPlan::epoch);
  return plans;
}

absl::Status HostedPlans::UnknownEpoch(std::string_view what, uint64_t epoch) const {
  const std::string subject = absl::StrFormat("%s of epoch %d", std::string(what), epoch);
  std::vector<uint64_t> epochs;
  for (const HostedPlan* plan : loaded()) epochs.push_back(plan->epoch());
  if (epochs.empty()) {
    return absl::AbortedError(absl::StrFormat("%s, this worker has no plan loaded", subject));
  }
  return absl::AbortedError(
      absl::StrFormat("%s, this worker is at epoch %s", subject, absl::StrJoin(epochs, " and ")));
}

}  // namespace tandem
