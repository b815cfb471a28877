#include "services/gateway/executor/cluster_executor.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/worker_convert.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kCheckTimeout = absl::Seconds(2);
constexpr absl::Duration kLookTimeout = absl::Milliseconds(200);
constexpr absl::Duration kFirstReturnPause = absl::Seconds(10);
constexpr absl::Duration kLastReturnPause = absl::Minutes(10);

// The status of the plan of an epoch; null: the worker does not hold it.
const worker::v1::PlanStatus* FindPlan(const worker::v1::GetStatusResponse& status,
                                       uint64_t epoch) {
  for (const worker::v1::PlanStatus& plan : status.plans()) {
    if (plan.epoch() == epoch) return &plan;
  }
  return nullptr;
}

// Not that somebody is missing: asked again, the workers would say the same.
bool IsRefusal(const absl::Status& status) {
  return !status.ok() && !WorthRetrying(status) && !absl::IsAborted(status);
}

}  // namespace

std::string NewPlanToken() {
  std::random_device random;
  std::string token;
  while (token.size() < 16) token.push_back(static_cast<char>(random()));
  return token;
}

ExecutorOptions WithNewPlanId(ExecutorOptions options) {
  static std::atomic<uint64_t> last{0};
  absl::StrAppendFormat(&options.plan_id, "-%d", ++last);
  return options;
}

absl::StatusOr<std::unique_ptr<Executor>> Executor::Start(ExecutorOptions options,
                                                          const Progress& progress) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ClusterExecutor> executor,
                          ClusterExecutor::Create(std::move(options)));
  TANDEM_RETURN_IF_ERROR(executor->Build(progress));
  return executor;
}

absl::StatusOr<std::unique_ptr<ClusterExecutor>> ClusterExecutor::Create(ExecutorOptions options) {
  if (options.num_lanes == 0 || options.num_lanes > kMaxLanes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("num_lanes is %d, must be in [1, %d]", options.num_lanes, kMaxLanes));
  }
  TANDEM_ASSIGN_OR_RETURN(std::vector<WorkerPeer> peers, MakePeers(options));
  std::unique_ptr<ClusterExecutor> executor(
      new ClusterExecutor(std::move(options), std::move(peers)));
  TANDEM_ASSIGN_OR_RETURN(executor->model_, LeasedModel::Create(executor->options_));
  return executor;
}

ClusterExecutor::ClusterExecutor(ExecutorOptions options, std::vector<WorkerPeer> peers)
    : options_(std::move(options)),
      peers_(std::move(peers)),
      plan_token_(options_.plan_token.empty() ? NewPlanToken() : options_.plan_token),
      return_pause_(kFirstReturnPause),
      placer_(options_) {
  status_.SetPeers(peers_);
}

ClusterExecutor::~ClusterExecutor() = default;

absl::Status ClusterExecutor::Recover(const Progress& progress) { return Build(progress); }

absl::Status ClusterExecutor::Build(const Progress& progress) {
  const Progress report = progress ? progress : [](std::string_view, double) {};
  absl::Time deadline = absl::Now() + options_.worker_wait;
  while (true) {
    lost_ = absl::UnavailableError("the workers have not loaded the plan");
    for (WorkerPeer& peer : peers_) peer.client->Close();
    absl::Status status = model_->Acquire(report, deadline);
    if (IsModelChanged(status)) LetGo();
    // Packing a model takes its time; the workers get theirs all the same.
    if (epoch_ == 0) deadline = std::max(deadline, absl::Now() + options_.worker_wait);
    if (status.ok()) {
      report("connecting to workers", 0.0);
      status = MakePlacement(deadline - absl::Now());
      if (!status.ok()) return status;  // it has waited
    }
    if (status.ok()) status = MakeExchange();
    if (status.ok()) {
      status = LoadWorkers(report);
      if (IsRefusal(status) && placer_.LeaveOut(status, absl::Now())) continue;
    }
    if (status.ok()) {
      const absl::StatusOr<bool> begun = BeginPlan(report);
      if (begun.ok() && *begun) break;
      if (begun.ok()) {  // that took its time too
        deadline = std::max(deadline, absl::Now() + options_.worker_wait);
        continue;
      }
      status = begun.status();
    }
    // ABORTED: another gateway's plan has come between; the worker's epoch is asked for again.
    const bool again = WorthRetrying(status) || absl::IsAborted(status);
    if (!again || absl::Now() + kRetryPause >= deadline) return status;
    LogWarning("loading again", {{"reason", std::string(status.message())}});
    absl::SleepFor(kRetryPause);
  }
  UnloadOthers();
  PublishPlacements(absl::Now());
  if (file_watch_ == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<LoaderClient> loader, ConnectLoader(options_));
    file_watch_ = std::make_unique<ModelFileWatch>(std::move(loader), model_->model());
  }
  LogInfo("cluster ready", {{"placement", placement()},
                            {"notice", plan_.notice},
                            {"epoch", epoch_},
                            {"max_rows", limits_.max_rows},
                            {"context_len", limits_.context_len},
                            {"kv_type", std::string(Traits(limits_.kv_dtype).name)},
                            {"kv_blocks", absl::StrFormat("%d+%d", limits_.num_blocks[kGlobalGroup],
                                                          limits_.num_blocks[kWindowGroup])}});
  if (!plan_.notice.empty())
    LogWarning("the placement is not as wished", {{"notice", plan_.notice}});
  return absl::OkStatus();
}

absl::StatusOr<bool> ClusterExecutor::BeginPlan(const Progress& progress) {
  lost_ = absl::OkStatus();
  under_way_.clear();
  unanswered_.assign(workers_.size(), {});
  last_answer_.assign(workers_.size(), {});
  timer_ = {};
  if (placer_.untried()) {
    progress("trying " + placement(), 0.0);
    TANDEM_RETURN_IF_ERROR(placer_.Try(*this));
    timer_ = {};
  }
  // What was just measured may say that another number of layers on the NPU is worth a trial.
  if (placer_.BetterNpuLayers(config().num_layers) != better_npu_layers_) return false;
  if (!placer_.Begin(absl::Now())) return false;
  AddNotice(placer_.EnergyNotice());
  status_.SetPlan(plan_, config().num_layers);
  UsePromptsApart(placer_.prompts_apart());
  return true;
}

void ClusterExecutor::AddNotice(const std::string& notice) {
  if (!notice.empty()) absl::StrAppend(&plan_.notice, plan_.notice.empty() ? "" : "; ", notice);
}

void ClusterExecutor::LetGo() {
  if (file_watch_ != nullptr) file_watch_->Stop();  // none before the first Build has succeeded
  exchange_.reset();
}

void ClusterExecutor::FillStatus(v1::GetStatusResponse& status) const {
  status_.Fill(status);
  if (file_watch_ != nullptr) status.set_model_notice(file_watch_->notice());
}

std::span<std::byte> ClusterExecutor::StepArea(uint32_t lane) {
  TANDEM_CHECK(lane < num_lanes_);
  return exchange_->Area(lane, exchange_->layout.step);
}

std::span<std::byte> ClusterExecutor::MaskArea(uint32_t lane, uint32_t mask) {
  TANDEM_CHECK(lane < num_lanes_ && mask < limits().max_sequences);
  const ExchangeArea& area = exchange_->layout.masks;
  return exchange_->Area(lane, area).subspan(mask * area.row_bytes, area.row_bytes);
}

void ClusterExecutor::WriteSoftTokens(uint32_t lane, uint32_t first_row,
                                      std::span<const float> soft_tokens) {
  const ExchangeArea& area = exchange_->layout.soft_tokens;
  TANDEM_CHECK(lane < num_lanes_);
  TANDEM_CHECK(first_row * area.row_bytes + soft_tokens.size_bytes() <= area.bytes);
  std::memcpy(exchange_->Area(lane, area).data() + first_row * area.row_bytes, soft_tokens.data(),
              soft_tokens.size_bytes());
}

absl::Status ClusterExecutor::CheckWorkers() {
  TANDEM_RETURN_IF_ERROR(lost_);
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    const auto status = workers_[w]->client->GetStatus(kCheckTimeout);
    if (status.ok() && FindPlan(*status, epoch_) != nullptr) continue;
    Lose(w, absl::UnavailableError(absl::StrFormat(
                "%s: %s", plan_.workers[w].name,
                status.ok() ? absl::StrFormat("no longer holds the plan of epoch %d", epoch_)
                            : std::string(status.status().message()))));
    return lost_;
  }
  return LookForMissing();
}

absl::Status ClusterExecutor::LookForMissing() {
  absl::Status found;
  for (WorkerPeer& peer : peers_) {
    // Asking another host would hold up the next request.
    if (peer.remote.ok() || peer.left_out || peer.client->remote()) continue;
    if (absl::Now() < next_return_) continue;
    AskPeer(peer, kLookTimeout);
    if (!peer.remote.ok()) continue;
    const bool is_npu = peer.remote->description.kind == DeviceKind::kNpu;
    if (is_npu && options_.policy.npu == NpuPolicy::kOff) continue;
    found = absl::UnavailableError(
        absl::StrFormat("%s is there now: a new plan is made", peer.remote->description.name));
  }
  status_.SetMissing(peers_);
  if (found.ok()) return found;
  next_return_ = absl::Now() + return_pause_;
  return_pause_ = std::min(return_pause_ * 2, kLastReturnPause);
  lost_ = found;
  return found;
}

void ClusterExecutor::Lose(uint32_t worker, const absl::Status& why) {
  lost_ = why;
  status_.SetState(plan_.workers[worker].name, "lost");
  for (const WorkerPeer* peer : workers_) peer->client->Close();
}

}  // namespace tandem::gateway
