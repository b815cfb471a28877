#include "services/gateway/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {

SchedulerOptions Engine::MakeSchedulerOptions(const EngineOptions& options,
                                              const StepLimits& limits) {
  return {.limits = limits,
          .max_sequences = options.max_sequences,
          .max_rows = options.max_rows,
          .chunk_rows = options.chunk_rows,
          .max_waiting = options.max_waiting,
          .prefix_cache = options.prefix_cache};
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<Executor> executor,
                                                       const Tokenizer& tokenizer,
                                                       EngineOptions options) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler,
                          Scheduler::Create(MakeSchedulerOptions(options, executor->limits())));
  return std::unique_ptr<Engine>(
      new Engine(std::move(executor), tokenizer, std::move(options), std::move(scheduler)));
}

Engine::Engine(std::unique_ptr<Executor> executor, const Tokenizer& tokenizer,
               EngineOptions options, std::unique_ptr<Scheduler> scheduler)
    : executor_(std::move(executor)),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      scheduler_(std::move(scheduler)),
      recovery_pause_(options_.min_recovery_pause),
      places_(uint64_t{options_.max_sequences} + options_.max_waiting),
      end_reason_(absl::UnavailableError("the gateway is shutting down")) {
  rules_.stop_token_ids = executor_->config().stop_token_ids;
  PublishPlan();
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  Stop();
  thread_.join();
}

void Engine::Stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  work_.SignalOne();
}

absl::Status Engine::Submit(EngineRequest request, std::shared_ptr<TokenStream> stream) {
  const Api api = request.api;
  absl::Status status = TakeRequest(std::move(request), std::move(stream));
  if (!status.ok()) ReportRefused(api, status);
  return status;
}

absl::Status Engine::TakeRequest(EngineRequest request, std::shared_ptr<TokenStream> stream) {
  MutexLock lock(mutex_);
  if (draining_ || stopping_) return end_reason_;
  if (request.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  if (request.prompt.size() >= published_.max_sequence_len) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "context_length_exceeded: the prompt has %d tokens and must leave room for one more in a "
        "context of %d",
        request.prompt.size(), published_.max_sequence_len));
  }
  TANDEM_RETURN_IF_ERROR(places_.Take(request.tenant.name));
  ++num_requests_;
  mailbox_.push_back({std::move(request), std::move(stream), absl::Now()});
  work_.SignalOne();
  return absl::OkStatus();
}

void Engine::Drain(absl::Duration patience) {
  MutexLock lock(mutex_);
  draining_ = true;
  const absl::Time until = absl::Now() + patience;
  while (num_requests_ > 0 && ended_.WaitUntil(mutex_, until)) {
  }
}

uint32_t Engine::max_sequence_len() const {
  MutexLock lock(mutex_);
  return published_.max_sequence_len;
}

std::string Engine::placement() const {
  MutexLock lock(mutex_);
  return published_.placement;
}

void Engine::FillStatus(v1::GetStatusResponse& status) const {
  executor_->FillStatus(status);
  MutexLock lock(mutex_);
  const Snapshot& now = published_;
  status.set_state(draining_ ? "draining" : now.down_reason.empty() ? "ready" : "recovering");
  status.set_detail(now.down_reason);
  status.set_placement(now.placement);
  status.set_placement_notice(now.notice);
  status.set_recoveries(now.recoveries);
  v1::SchedulerStatus& scheduler = *status.mutable_scheduler();
  scheduler.set_running(now.load.running);
  scheduler.set_waiting(now.load.waiting + static_cast<uint32_t>(mailbox_.size()));
  scheduler.set_max_sequences(options_.max_sequences);
  scheduler.set_max_rows(options_.max_rows);
  for (int group = 0; group < kNumKvGroups; ++group) {
    scheduler.add_kv_blocks_total(now.load.blocks_total[group]);
    scheduler.add_kv_blocks_used(now.load.blocks_used[group]);
    scheduler.add_kv_blocks_cached(now.load.blocks_cached[group]);
    scheduler.add_kv_blocks_evicted(now.load.blocks_evicted[group]);
  }
  scheduler.set_max_waiting(options_.max_waiting);
  for (const SchedulerCounter& counter : kSchedulerCounters) {
    if (counter.set_status != nullptr) {
      (scheduler.*counter.set_status)(now.counters.*counter.value);
    }
  }
}

SchedulerCounters Engine::counters() const {
  MutexLock lock(mutex_);
  return published_.counters;
}

void Engine::Run() {
  while (WaitForWork()) {
    turns_.fetch_add(1, std::memory_order_relaxed);
    TakeMail();
    Sweep(absl::Now());
    if (!down_.ok()) {
      RecoverOnce();
    } else if (runs_.empty() && flights_.empty()) {
      CheckWorkers();
    } else {
      RunOneStep();
    }
  }
  TakeMail();
  EndAll(end_reason(), absl::InfiniteFuture());
  if (IsModelChanged(down_) && options_.on_model_changed) options_.on_model_changed();
}

bool Engine::WaitForWork() {
  MutexLock lock(mutex_);
  if (down_.ok() && flights_.empty()) {
    const absl::Time check = absl::Now() + options_.idle_check;
    while (num_requests_ == 0 && !stopping_ && work_.WaitUntil(mutex_, check)) {
    }
  }
  return !stopping_;
}

void Engine::TakeMail() {
  std::vector<Mail> mails;
  {
    MutexLock lock(mutex_);
    mails.swap(mailbox_);
    // Until the scheduler's load, which includes them, is published.
    published_.load.waiting += static_cast<uint32_t>(mails.size());
  }
  for (Mail& mail : mails) Accept(std::move(mail));
}

void Engine::Accept(Mail mail) {
  const uint64_t id = next_id_++;
  auto run = std::make_unique<RequestRun>(std::move(mail.request), tokenizer_,
                                          std::move(mail.stream), mail.submitted);
  for (EngineObserver* observer : options_.observers) {
    observer->RequestAccepted(id, run->request(), run->submitted());
  }
  const absl::Status status = scheduler_->Add(run->MakeSequenceSpec(id));
  runs_.emplace(id, std::move(run));
  if (!status.ok()) End(id, status);
}

void Engine::Sweep(absl::Time now) {
  std::vector<std::pair<uint64_t, absl::Status>> ended;
  for (const auto& [id, run] : runs_) {
    if (run->stream()->cancelled()) {
      ended.emplace_back(id, absl::CancelledError("the client has gone"));
    } else if (now >= run->request().deadline) {
      ended.emplace_back(id, absl::DeadlineExceededError(absl::StrFormat(
                                 "the deadline passed after %d tokens", run->num_decided())));
    } else if (!down_.ok() && !run->started() &&
               now - std::max(run->submitted(), down_since_) >= options_.down_wait) {
      ended.emplace_back(
          id, absl::UnavailableError(absl::StrFormat(
                  "a worker is lost and has not come back within %s: %s",
                  absl::FormatDuration(options_.down_wait), std::string(down_.message()))));
    }
  }
  for (auto& [id, status] : ended) End(id, std::move(status));
}

void Engine::End(uint64_t id, absl::Status status, v1::FinishReason reason) {
  const auto found = runs_.find(id);
  RequestRun& run = *found->second;
  const std::shared_ptr<TokenStream> stream = run.stream();
  const std::string tenant = run.request().tenant.name;
  if (!status.ok() && !absl::IsCancelled(status)) {
    LogWarning("request failed",
               {{"request_id", run.request().request_id}, {"status", status.ToString()}});
  }
  scheduler_->Remove(id);
  // After NaN logits, drop the prefix cache so that no later request reuses that KV.
  if (absl::IsDataLoss(status)) scheduler_->ForgetPrefixes();
  const absl::Time now = absl::Now();
  if (!options_.observers.empty()) ReportEnd(id, run, status, reason, now);
  StreamEnd end{std::move(status), reason, run.MakeUsage(now), run.TakeEmbedding()};
  runs_.erase(found);
  // What the reader can ask about must be true by the time it learns of the end, and it may be
  // looking already, for the tokens before.
  Publish();
  {
    MutexLock lock(mutex_);
    --num_requests_;
    places_.Release(tenant);
    ended_.SignalAll();
  }
  stream->End(std::move(end));
  notifier_.Post(stream);
}

void Engine::EndAll(const absl::Status& status, absl::Time submitted_before) {
  std::vector<uint64_t> ids;
  for (const auto& [id, run] : runs_) {
    if (run->submitted() < submitted_before) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const uint64_t id : ids) End(id, status);
}

absl::Status Engine::end_reason() const {
  MutexLock lock(mutex_);
  return end_reason_;
}

bool Engine::recovering() const {
  MutexLock lock(mutex_);
  return !published_.down_reason.empty();
}

bool Engine::stopping() const {
  MutexLock lock(mutex_);
  return stopping_;
}

void Engine::Publish() {
  snapshot_.load = scheduler_->load();
  snapshot_.counters = scheduler_->counters() + counters_;
  MutexLock lock(mutex_);
  published_.load = snapshot_.load;
  published_.counters = snapshot_.counters;
}

void Engine::PublishPlan() {
  snapshot_.load = scheduler_->load();
  snapshot_.counters = scheduler_->counters() + counters_;
  snapshot_.max_sequence_len = rules_.max_sequence_len = scheduler_->max_sequence_len();
  snapshot_.placement = executor_->placement();
  snapshot_.notice = executor_->plan().notice;
  for (EngineObserver* observer : options_.observers) {
    observer->PlanInForce({.plan = &executor_->plan(),
                           .num_layers = executor_->config().num_layers,
                           .epoch = executor_->epoch()});
  }
  MutexLock lock(mutex_);
  published_ = snapshot_;
}

}  // namespace tandem::gateway
