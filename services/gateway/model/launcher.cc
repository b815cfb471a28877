#include "services/gateway/model/launcher.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

constexpr absl::Duration kPauseWhenMissing = absl::Milliseconds(500);
constexpr absl::Duration kPauseWhenFailed = absl::Seconds(10);
constexpr char kShuttingDown[] = "the gateway is shutting down";

bool IsMissing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

void FillPictures(const PictureEncoder::Counts& counts, v1::PictureStatus& status) {
  const auto number = [&](PictureOutcome of) { return counts.outcomes[static_cast<size_t>(of)]; };
  const auto seconds = [&](PictureStage of) {
    return absl::ToDoubleSeconds(counts.stage_times[static_cast<size_t>(of)]);
  };
  status.set_cached(number(PictureOutcome::kCached));
  status.set_encoded(number(PictureOutcome::kEncoded));
  status.set_refused(number(PictureOutcome::kRefused));
  status.set_failed(number(PictureOutcome::kFailed));
  status.set_decode_seconds(seconds(PictureStage::kDecode));
  status.set_prepare_seconds(seconds(PictureStage::kPrepare));
  status.set_encode_seconds(seconds(PictureStage::kEncode));
  status.set_cache_pictures(counts.cached);
  status.set_cache_bytes(counts.cached_bytes);
}

}  // namespace

Launcher::Launcher(ReplicaStarts starts, EngineOptions options, ModelNameOptions names,
                   std::optional<ToolFormat> tools, MakePictureEncoder make_pictures)
    : options_(std::move(options)),
      names_(std::move(names)),
      tools_(tools),
      make_pictures_(std::move(make_pictures)),
      starts_(std::move(starts)) {
  options_.on_ready_change = [this](bool ready) { Report(ready); };
  options_.on_model_changed = [this] {
    MutexLock lock(mutex_);
    model_changed_ = true;
    stop_.SignalAll();
  };
}

Launcher::~Launcher() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    stop_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Launcher::Begin(std::function<void(bool)> on_ready) {
  on_ready_ = std::move(on_ready);
  thread_ = std::thread([this] { Run(); });
}

void Launcher::Run() {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      starting_ = true;
    }
    const absl::Status status = TryOnce();
    if (status.ok()) {
      if (!AwaitModelChange()) return;
      continue;
    }
    MutexLock lock(mutex_);
    starting_ = false;
    state_ = IsMissing(status) ? "starting" : "failed";
    detail_ = std::string(status.message());
    LogError("start failed", {{"status", status.ToString()}});
    const absl::Time next =
        absl::Now() + (IsMissing(status) ? kPauseWhenMissing : kPauseWhenFailed);
    while (!stopping_ && stop_.WaitUntil(mutex_, next)) {
    }
  }
}

bool Launcher::AwaitModelChange() {
  const ServedModel* former = nullptr;
  std::string detail;
  {
    MutexLock lock(mutex_);
    starting_ = false;
    while (!stopping_ && !model_changed_) {
      if (std::exchange(replicas_changed_, false)) {
        model_->replicas().Update(Wanted());
      } else {
        stop_.Wait(mutex_);
      }
    }
    if (stopping_) return false;
    model_changed_ = false;
    state_ = "loading";
    detail = "the model's file has changed and its former weights are lost: loading it again";
    detail_ = detail;
    former_.push_back(std::move(model_));
    former = former_.back().get();
  }
  LogWarning("serving the changed file",
             {{"model", std::string(former->info().name())},
              {"former_model_id", std::string(former->info().model_id())}});
  former->StopPreparing(absl::UnavailableError(detail));
  return true;
}

absl::Status Launcher::TryOnce() {
  const auto progress = [this](std::string_view phase, double fraction) {
    MutexLock lock(mutex_);
    if (state_ != "failed") state_ = "loading";
    detail_ = absl::StrFormat("%s: %.0f%%", std::string(phase), 100.0 * fraction);
  };
  ReplicaStarts starts;
  {
    MutexLock lock(mutex_);
    starts = starts_;
    starts.all = Wanted();
  }
  TANDEM_ASSIGN_OR_RETURN(LoadedReplica first, LoadFirst(starts.all, progress));
  EngineOptions options = options_;
  options.drafters_progress = progress;
  TANDEM_ASSIGN_OR_RETURN(
      std::unique_ptr<ServedModel> model,
      ServedModel::Create(std::move(first), starts, options, names_, tools_, make_pictures_));
  LogInfo("ready", {{"model", model->info().name()}, {"placement", model->replicas().placement()}});
  {
    MutexLock lock(mutex_);
    model_ = std::move(model);
  }
  Report(true);
  return absl::OkStatus();
}

void Launcher::SetReplicas(std::vector<ReplicaStart> starts) {
  MutexLock lock(mutex_);
  starts_.all = std::move(starts);
  replicas_changed_ = true;
  stop_.SignalAll();
}

void Launcher::SetExtra(std::optional<ReplicaStart> start) {
  MutexLock lock(mutex_);
  extra_ = std::move(start);
  replicas_changed_ = true;
  stop_.SignalAll();
}

std::vector<ReplicaStart> Launcher::Wanted() const {
  std::vector<ReplicaStart> all = starts_.all;
  if (extra_.has_value()) all.push_back(*extra_);
  return all;
}

absl::StatusOr<LoadedReplica> Launcher::LoadFirst(const std::vector<ReplicaStart>& starts,
                                                  const Executor::Progress& progress) const {
  absl::Status failed;
  for (uint32_t replica = 0; replica < starts.size(); ++replica) {
    {
      MutexLock lock(mutex_);
      if (stopping_) break;
    }
    auto executor = starts[replica].start(progress);
    if (executor.ok()) return LoadedReplica{replica, *std::move(executor)};
    // Something that is not there may come: that matters more than what cannot work.
    if (failed.ok() || IsMissing(executor.status())) failed = executor.status();
  }
  return failed.ok() ? absl::UnavailableError(kShuttingDown) : failed;
}

void Launcher::Report(bool ready) {
  {
    MutexLock lock(mutex_);
    if (draining_) ready = false;
  }
  on_ready_(ready);
}

absl::StatusOr<const ServedModel*> Launcher::model() const {
  MutexLock lock(mutex_);
  if (model_ != nullptr) return model_.get();
  return absl::UnavailableError(absl::StrFormat("the gateway is not ready: %s%s%s", state_,
                                                detail_.empty() ? "" : ", ", detail_));
}

void Launcher::FillStatus(v1::GetStatusResponse& status) const {
  const ServedModel* model = nullptr;
  {
    MutexLock lock(mutex_);
    status.set_state(draining_ ? "draining" : state_);
    status.set_detail(detail_);
    status.set_model_reloads(former_.size());
    model = model_.get();
  }
  if (model == nullptr) return;
  status.set_model(model->info().name());
  model->replicas().FillStatus(status);
  if (model->pictures() != nullptr) {
    FillPictures(model->pictures()->counts(), *status.mutable_pictures());
  }
}

SchedulerCounters Launcher::counters() const {
  const ServedModel* model = nullptr;
  {
    MutexLock lock(mutex_);
    model = model_.get();
  }
  return model == nullptr ? SchedulerCounters() : model->replicas().counters();
}

void Launcher::ReportRefused(Api api, const absl::Status& status) const {
  for (EngineObserver* observer : options_.observers) observer->RequestRefused(api, status);
}

std::vector<uint64_t> Launcher::progress() const {
  const ServedModel* model = nullptr;
  {
    MutexLock lock(mutex_);
    model = model_.get();
  }
  return model == nullptr ? std::vector<uint64_t>() : model->replicas().progress();
}

ConstraintCounts Launcher::constraint_counts() const {
  const ServedModel* model = nullptr;
  {
    MutexLock lock(mutex_);
    model = model_.get();
  }
  return model == nullptr ? ConstraintCounts() : model->constraints().counts();
}

std::optional<PictureEncoder::Counts> Launcher::picture_counts() const {
  const ServedModel* model = nullptr;
  {
    MutexLock lock(mutex_);
    model = model_.get();
  }
  if (model == nullptr || model->pictures() == nullptr) return std::nullopt;
  return model->pictures()->counts();
}

void Launcher::Drain(absl::Duration patience) {
  const ServedModel* model = nullptr;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    model = model_.get();
  }
  if (model == nullptr) return;
  model->StopPreparing(absl::UnavailableError(kShuttingDown));
  model->replicas().Drain(patience);
}

void Launcher::EndRequests() {
  const ServedModel* model = nullptr;
  {
    MutexLock lock(mutex_);
    model = model_.get();
  }
  if (model == nullptr) return;
  model->StopPreparing(absl::UnavailableError(kShuttingDown));
  model->replicas().Stop();
}

bool Launcher::waiting_for_services() const {
  MutexLock lock(mutex_);
  return starting_ || (model_ != nullptr && model_->replicas().waiting());
}

}  // namespace tandem::gateway
