// ClusterExecutor: makes a plan over the workers there are, and has them load it.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/plan/alternatives.h"
#include "services/common/rpc/worker_convert.h"
#include "services/common/version/version.h"
#include "services/gateway/executor/cluster_executor.h"
#include "services/gateway/executor/parallel_load.h"
#include "services/gateway/executor/prompts_apart.h"
#include "services/gateway/executor/step_sizing.h"
#include "services/gateway/placement/npu_layers.h"

namespace tandem::gateway {
namespace {

// Left of a worker's memory when other plans have taken it: too little for a plan.
constexpr uint64_t kLeastMemory = 4096;
constexpr absl::Duration kUnloadTimeout = absl::Seconds(2);

}  // namespace

std::vector<WorkerDescription> ClusterExecutor::Available(
    std::vector<WorkerDescription> workers) const {
  if (!options_.only_worker.empty()) {
    std::erase_if(workers, [this](const WorkerDescription& worker) {
      return worker.name != options_.only_worker;
    });
  }
  if (!options_.yields) return workers;
  for (WorkerDescription& worker : workers) {
    for (const WorkerPeer& peer : peers_) {
      if (!peer.remote.ok() || peer.remote->description.name != worker.name) continue;
      for (const RemoteWorker::Plan& plan : peer.remote->plans) {
        if (plan.id == options_.plan_id) continue;
        // Not zero, which means unknown.
        worker.memory_available_bytes -= std::min(
            plan.bytes, std::max(worker.memory_available_bytes, kLeastMemory) - kLeastMemory);
      }
    }
  }
  return workers;
}

absl::Status ClusterExecutor::MakePlacement(absl::Duration wait) {
  auto plan = FindWorkers(
      peers_, options_.worker_grace, wait, [this](const std::vector<WorkerDescription>& workers) {
        PlacementPolicy policy = options_.policy;
        policy.why_no_npu = WhyNoNpu(peers_);
        return MakePlan(config(), model_->weight_dtypes(), Available(workers), policy);
      });
  status_.SetPeers(peers_);
  TANDEM_RETURN_IF_ERROR(plan.status());
  TANDEM_RETURN_IF_ERROR(ChoosePlacement(*plan));
  feeds_ = options_.queue_steps && plan_.segments.size() == 1 && plan_.workers[0].feeds_steps;
  const bool lanes = options_.queue_steps && plan_.workers.size() > 1;
  depth_ = lanes ? MostLanes(plan_.workers.size()) : feeds_ ? 2 : 1;
  num_lanes_ = std::max(options_.num_lanes, depth_);
  workers_.clear();
  for (const WorkerDescription& worker : plan_.workers) {
    for (const WorkerPeer& peer : peers_) {
      if (peer.remote.ok() && peer.remote->description.name == worker.name) {
        workers_.push_back(&peer);
      }
    }
  }
  TANDEM_CHECK(workers_.size() == plan_.workers.size());
  return absl::OkStatus();
}

absl::Status ClusterExecutor::ChoosePlacement(const Plan& plan) {
  std::vector<WorkerDescription> there;
  for (const WorkerPeer& peer : peers_) {
    if (peer.remote.ok()) there.push_back(peer.remote->description);
  }
  std::vector<Plan> plans = {plan};
  if (options_.policy.npu == NpuPolicy::kAuto) {
    TANDEM_ASSIGN_OR_RETURN(plans, MakeAlternatives(config(), model_->weight_dtypes(),
                                                    Available(there), options_.policy));
  }
  std::vector<Placement> placements;
  absl::Status refused;
  for (Plan& alternative : plans) {
    alternative.notice = plan.notice;
    const auto limits = Limits(alternative);
    if (limits.ok()) {
      placements.push_back({.plan = std::move(alternative), .limits = *limits});
    } else if (refused.ok()) {
      refused = limits.status();
    }
  }
  if (placements.empty()) return refused;
  AddPromptsApart(Available(there), placements);
  AddNpuLayers(Available(there), FirstNpuLayers(config().num_layers), placements);
  const std::string key =
      absl::StrFormat("%s; %s, %d layers of %d", Version(), model_->model().quantization(),
                      config().num_layers, config().hidden_dim);
  const Placement* chosen = &placer_.Choose(config(), placements, key, absl::Now());
  better_npu_layers_ = placer_.BetterNpuLayers(config().num_layers);
  if (better_npu_layers_ > 0) {
    AddNpuLayers(Available(there), better_npu_layers_, placements);
    chosen = &placer_.Choose(config(), std::move(placements), key, absl::Now());
  }
  plan_ = chosen->plan;
  limits_ = chosen->limits;
  AddNotice(placer_.LeftOut(absl::Now()));
  return absl::OkStatus();
}

void ClusterExecutor::AddPromptsApart(const std::vector<WorkerDescription>& workers,
                                      std::vector<Placement>& placements) const {
  if (options_.prompts_apart == nullptr) return;
  const auto gpu_alone = std::ranges::find_if(placements, [](const Placement& placement) {
    return std::ranges::none_of(placement.plan.workers, [](const WorkerDescription& worker) {
      return worker.kind == DeviceKind::kNpu;
    });
  });
  if (gpu_alone == placements.end()) return;
  auto plan = MakePlan(config(), model_->weight_dtypes(), workers, options_.prompts_apart->policy);
  if (!plan.ok()) {
    LogDebug("prompts are not for an NPU", {{"reason", std::string(plan.status().message())}});
    return;
  }
  Placement apart = *gpu_alone;
  apart.prompts = *std::move(plan);
  placements.push_back(std::move(apart));
}

void ClusterExecutor::AddNpuLayers(const std::vector<WorkerDescription>& workers,
                                   uint32_t npu_layers, std::vector<Placement>& placements) const {
  const uint32_t num_layers = config().num_layers;
  const PlacementPolicy& policy = options_.policy;
  const bool asked = options_.npu_layers && policy.npu == NpuPolicy::kAuto && !policy.out_on_npu;
  const auto gpu = std::ranges::find_if(placements, [](const Placement& placement) {
    const std::vector<WorkerDescription>& all = placement.plan.workers;
    return all.size() == 1 && all[0].kind == DeviceKind::kGpu && !placement.prompts.has_value();
  });
  if (!asked || gpu == placements.end() || npu_layers >= num_layers) return;
  const uint32_t first = num_layers - npu_layers;
  for (const WorkerDescription& npu : workers) {
    if (npu.kind != DeviceKind::kNpu) continue;
    PlacementPolicy ranges = policy;
    ranges.npu = NpuPolicy::kRequire;
    ranges.layers = {{gpu->plan.workers[0].name, 0, first - 1}, {npu.name, first, num_layers - 1}};
    auto plan = MakePlan(config(), model_->weight_dtypes(), workers, ranges);
    if (!plan.ok()) {
      LogDebug("no layers on an NPU", {{"reason", std::string(plan.status().message())}});
      continue;
    }
    const auto limits = Limits(*plan);
    // Where another placement takes pictures, this one has to.
    const bool blind = config().vision.has_value() && !plan->why_no_pictures().empty() &&
                       gpu->plan.why_no_pictures().empty();
    if (!limits.ok() || blind) continue;
    plan->notice = gpu->plan.notice;
    placements.push_back(
        {.plan = *std::move(plan), .limits = *limits, .prompts = {}, .npu_layers = npu_layers});
    return;
  }
}

absl::StatusOr<StepLimits> ClusterExecutor::Limits(const Plan& plan) const {
  uint32_t context_len = options_.context_len;
  if (context_len == 0 && options_.context_at_most != 0) {
    context_len = std::min(options_.context_at_most, config().context_len);
  }
  TANDEM_ASSIGN_OR_RETURN(StepLimits limits,
                          MakeStepLimits(config(), plan,
                                         {.max_rows = options_.max_rows,
                                          .max_sequences = options_.max_sequences,
                                          .context_len = context_len,
                                          .block_tokens = options_.block_tokens,
                                          .kv_tokens = options_.kv_tokens,
                                          .kv_dtype = options_.policy.kv_dtype,
                                          .weights = model_->tensors(),
                                          .vision_bytes = model_->vision_bytes()}));
  if (options_.kv_area_bytes > 0) {
    limits.kv_area_bytes = KvAreaBytes(config(), plan, limits, options_.kv_area_bytes);
  }
  return limits;
}

void ClusterExecutor::Unload() {
  workers_.clear();
  UnloadOthers();
}

void ClusterExecutor::UnloadOthers() {
  for (auto held = held_.begin(); held != held_.end();) {
    const auto& [peer, epoch] = *held;
    if (std::ranges::count(workers_, peer) > 0) {
      ++held;
      continue;
    }
    const absl::Status dropped = peer->client->UnloadPlan(epoch, plan_token_, kUnloadTimeout);
    if (!dropped.ok()) LogDebug("a plan was gone", {{"reason", std::string(dropped.message())}});
    held = held_.erase(held);
  }
}

absl::Status ClusterExecutor::MakeExchange() {
  // Above what this gateway and those before it had the workers accept.
  for (const WorkerPeer* peer : workers_) epoch_ = std::max(epoch_, peer->remote->highest_epoch);
  ++epoch_;
  auto exchange = std::make_unique<Exchange>();
  exchange->layout = MakeExchangeLayout(config(), limits_, num_lanes_);
  const uint64_t bytes = exchange->layout.total_bytes();
  TANDEM_ASSIGN_OR_RETURN(LeasedModel::NewRegion region, model_->CreateRegion(bytes, "exchange"));
  exchange_region_id_ = region.id;
  exchange->fd = std::move(region.fd);
  TANDEM_ASSIGN_OR_RETURN(exchange->mapping,
                          Mapping::Map(exchange->fd.get(), bytes, Mapping::Access::kReadWrite));
  exchange_ = std::move(exchange);
  FindKvCopiers();
  headers_.assign(num_lanes_, {});
  results_.Reset(num_lanes_, limits_);
  return absl::OkStatus();
}

worker::v1::LoadPlanRequest ClusterExecutor::LoadRequest(uint32_t worker) const {
  worker::v1::LoadPlanRequest request;
  request.set_epoch(epoch_);
  request.set_model_id(model_->model().model_id());
  for (const Segment& segment : plan_.segments) {
    if (segment.worker == worker) *request.add_segments() = ToProto(segment);
  }
  *request.mutable_limits() = ToProto(limits_);
  request.set_num_lanes(num_lanes_);
  request.set_port_dtype(static_cast<uint32_t>(plan_.port_dtype));
  request.set_plan_id(options_.plan_id);
  request.set_plan_token(plan_token_);
  request.set_yields(options_.yields);
  if (workers_[worker]->client->remote()) {
    request.set_inline_activations(true);
    request.set_model_name(options_.model_name);
    return request;
  }
  request.set_loader_target(options_.loader_target);
  request.set_exchange_lease_token(model_->lease_token());
  request.set_exchange_region_id(exchange_region_id_);
  return request;
}

absl::Status ClusterExecutor::LoadWorkers(const Progress& progress) {
  std::vector<WorkerLoad> loads;
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    status_.SetState(plan_.workers[w].name, "loading");
    loads.push_back({.name = plan_.workers[w].name,
                     .client = workers_[w]->client.get(),
                     .request = LoadRequest(w)});
  }
  const absl::Status status = LoadInParallel(loads, options_.load_deadline, progress);
  for (const WorkerLoad& load : loads) {
    if (load.report.ok()) {
      status_.SetState(load.name, "connected");
      status_.SetReport(load.name, *load.report);
    } else {
      status_.SetState(load.name, "lost", std::string(load.report.status().message()));
    }
  }
  TANDEM_RETURN_IF_ERROR(status);
  for (const WorkerPeer* peer : workers_) {
    held_[peer] = epoch_;
    peer->client->Open(peer->remote->execution_target);
    status_.SetState(peer->remote->description.name, "ready");
  }
  return absl::OkStatus();
}

}  // namespace tandem::gateway
