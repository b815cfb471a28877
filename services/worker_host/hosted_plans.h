// The plans that a worker holds: whose they are, their weights, their memory.
//
//   plan_id "main"  --> number 0, epoch 7, lease on model A, exchange region, KV cache
//   plan_id "draft" --> number 1, epoch 9, lease on model B, ...
//
// All plans belong to one gateway: its plan_token is in each (docs/decisions/0016, 0023).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/worker/stage_work.h"
#include "services/common/worker/worker.h"
#include "services/worker_host/loaded_plan.h"
#include "services/worker_host/weight_source.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// The holder of a plan, and where to ask whether its lease is alive.
struct PlanHolder {
  std::string token;
  std::string loader_target;  // empty: a gateway on another host, whose lease cannot be checked
  std::string lease_token;
  uint32_t region_id = 0;
};

struct HostedPlan {
  std::string id;
  uint32_t number = 0;  // ModelLoad::plan
  PlanHolder holder;
  bool yields = false;
  // Kept when a load fails, for the next attempt.
  LeasedWeights leased;
  std::unique_ptr<LoadedPlan> plan;  // null: no load has succeeded since the last one failed
  std::vector<SegmentCosts> costs;   // by index in the plan; empty for other workers' segments
  uint64_t memory_bytes = 0;
  worker::v1::LoadPlanReport report;

  uint64_t epoch() const { return plan->epoch(); }
};

// Single-thread.
class HostedPlans {
 public:
  using Progress = std::function<void(double fraction, std::string_view phase)>;

  // Borrowed; both must outlive this.
  HostedPlans(Worker& worker, WeightSource& source);

  // UNAVAILABLE: a plan here is another gateway's, whose lease is alive.
  absl::Status CheckHolder(const std::string& plan_token);
  // Loads a plan in place of the one of the same id, whatever the outcome.  Drops the plans of
  // other gateways, and plans that yield if memory does not suffice.  INVALID_ARGUMENT: the id.
  // RESOURCE_EXHAUSTED: memory for all plans together, or kMaxPlans are loaded.  Otherwise as
  // LoadedPlan::Create, WeightSource and Worker::Load.  REQUIRES CheckHolder.
  absl::StatusOr<const HostedPlan*> Load(const worker::v1::LoadPlanRequest& request,
                                         const Progress& progress);
  // Drops a plan and its leases.  ABORTED: no plan has the epoch.  PERMISSION_DENIED: it has
  // another token.
  absl::Status Unload(const worker::v1::UnloadPlanRequest& request);
  // Drops every plan, but keeps the leases on weights: the device has lost them all.
  void DropAll();

  // The plan of an epoch; null: none.
  HostedPlan* Find(uint64_t epoch);
  // Loaded plans.
  uint32_t size() const;
  // ABORTED: `what` ("call") has an epoch that no plan here has.
  absl::Status UnknownEpoch(std::string_view what, uint64_t epoch) const;
  // The loaded plans, in the order of their epochs.
  std::vector<const HostedPlan*> loaded() const;

 private:
  // The entry of an id; a new one if the id is new.
  absl::StatusOr<HostedPlan*> Entry(const std::string& id);
  absl::Status LoadOnce(const worker::v1::LoadPlanRequest& request, HostedPlan& entry,
                        const Progress& progress);
  absl::Status FetchWeights(const worker::v1::LoadPlanRequest& request, HostedPlan& entry,
                            const Progress& progress);
  // RESOURCE_EXHAUSTED: beside the other plans, `bytes` do not fit.
  absl::Status AdmitMemory(const HostedPlan& entry, uint64_t bytes) const;
  // Drops what yields, but not `entry`; false: there was nothing.
  bool DropYielding(const HostedPlan& entry);
  void Drop(HostedPlan& entry);

  Worker& worker_;
  WeightSource& source_;
  const std::string holder_name_;  // how leases name this worker
  std::vector<std::unique_ptr<HostedPlan>> entries_;
};

}  // namespace tandem
