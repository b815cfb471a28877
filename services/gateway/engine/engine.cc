#include "services/gateway/engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {
namespace {

constexpr size_t kConstraintThreads = 2;

}  // namespace

SchedulerOptions Engine::MakeSchedulerOptions(const EngineOptions& options,
                                              const StepLimits& limits) {
  return {.limits = limits,
          .max_sequences = options.max_sequences,
          .max_rows = options.max_rows,
          .chunk_rows = options.chunk_rows,
          .prefix_cache = options.prefix_cache};
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::unique_ptr<Executor> executor,
                                                       const Tokenizer& tokenizer,
                                                       EngineOptions options) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Scheduler> scheduler,
                          Scheduler::Create(MakeSchedulerOptions(options, executor->limits())));
  std::vector<std::unique_ptr<Drafter>> drafters;
  if (options.make_drafters) {
    TANDEM_ASSIGN_OR_RETURN(drafters, options.make_drafters(*executor, options.drafters_progress));
  }
  return std::unique_ptr<Engine>(new Engine(std::move(executor), tokenizer, std::move(options),
                                            std::move(scheduler), std::move(drafters)));
}

Engine::Engine(std::unique_ptr<Executor> executor, const Tokenizer& tokenizer,
               EngineOptions options, std::unique_ptr<Scheduler> scheduler,
               std::vector<std::unique_ptr<Drafter>> drafters)
    : executor_(std::move(executor)),
      tokenizer_(tokenizer),
      options_(std::move(options)),
      rounding_(RoundingOf(*executor_)),
      scheduler_(std::move(scheduler)),
      admission_({.max_requests = uint64_t{options_.max_sequences} + options_.max_waiting,
                  .max_tokens = options_.max_queued_tokens,
                  .max_running = options_.max_sequences,
                  .max_rows = options_.max_rows,
                  .ids = options_.ids}),
      recovery_(*executor_, {.down_wait = options_.down_wait,
                             .min_pause = options_.min_recovery_pause,
                             .max_pause = options_.max_recovery_pause,
                             .on_ready_change = options_.on_ready_change}),
      sender_(*executor_, *scheduler_),
      receiver_(*executor_, *scheduler_, FreePlaces(), [this] { admission_.Wake(); }),
      hands_over_(options_.hands_over),
      constraint_encoder_(ForcedEncoderOf(tokenizer_)),
      constraint_pool_(kConstraintThreads, constraint_encoder_),
      notifier_(options_.notifier != nullptr ? options_.notifier
                                             : std::make_shared<StreamNotifier>()) {
  snapshot_.drafters.resize(drafters.size());
  if (!drafters.empty()) speculator_ = std::make_unique<Speculator>(std::move(drafters));
  if (speculator_ != nullptr && !options_.observers.empty()) {
    speculator_->Observe([this](const DraftStep& step) { ReportDraft(step); });
  }
  TANDEM_CHECK(executor_->depth() <= kMostUnderWay);
  rules_.stop_token_ids = executor_->config().stop_token_ids;
  PublishPlan();
  thread_ = std::thread([this] { Run(); });
}

Engine::~Engine() {
  Stop();
  thread_.join();
  if (unloads_) executor_->Unload();
}

void Engine::Stop() { admission_.Stop(absl::UnavailableError("the gateway is shutting down")); }

absl::Status Engine::Submit(EngineRequest&& request, std::shared_ptr<TokenStream> stream) {
  const Api api = request.api;
  if (options_.shared_prefixes) request.cache_scope.clear();
  absl::Status status = admission_.Submit(std::move(request), std::move(stream));
  // With neighbours, whoever chose this engine reports it.
  if (!status.ok() && options_.neighbours == nullptr) ReportRefused(api, status);
  return status;
}

std::string Engine::placement() const {
  MutexLock lock(mutex_);
  return published_.placement;
}

void Engine::FillStatus(v1::GetStatusResponse& status) const {
  executor_->FillStatus(status);
  const std::string lost = recovery_.reason();
  const uint32_t num_requests = admission_.num_requests();
  status.set_state(admission_.draining() ? "draining" : lost.empty() ? "ready" : "recovering");
  status.set_detail(lost);
  status.set_recoveries(recovery_.count());
  MutexLock lock(mutex_);
  const Snapshot& now = published_;
  status.set_placement(now.placement);
  status.set_placement_notice(now.notice);
  v1::SchedulerStatus& scheduler = *status.mutable_scheduler();
  scheduler.set_running(now.load.running);
  // Includes requests that the thread has not taken yet.
  scheduler.set_waiting(num_requests - std::min(num_requests, now.load.running));
  scheduler.set_max_sequences(options_.max_sequences);
  scheduler.set_max_rows(options_.max_rows);
  for (int group = 0; group < kNumKvGroups; ++group) {
    scheduler.add_kv_blocks_total(now.load.blocks_total[group]);
    scheduler.add_kv_blocks_used(now.load.blocks_used[group]);
    scheduler.add_kv_blocks_cached(now.load.blocks_cached[group]);
    scheduler.add_kv_blocks_evicted(now.load.blocks_evicted[group]);
  }
  scheduler.set_max_waiting(options_.max_waiting);
  FillDrafters(now, scheduler);
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
  const auto patience = [this] {
    return recovery_.down() || !flights_.empty() || CopiesDue() ? absl::ZeroDuration()
                                                                : options_.idle_check;
  };
  while (admission_.WaitForRequest(patience())) RunOnce();
  TakeRequests();
  receiver_.Stop();
  EndAll(admission_.end_reason(), absl::InfiniteFuture());
  Publish();
  // The engine may be kept for a while: its drafters must not hold on to workers until then.
  if (speculator_ != nullptr) speculator_->Stop();
  if (IsModelChanged(recovery_.why()) && options_.on_model_changed) options_.on_model_changed();
}

void Engine::RunOnce() {
  turns_.fetch_add(1, std::memory_order_relaxed);
  // Before requests are taken: those that come while a step runs are in the next one.
  if (flights_.size() == 1 && !recovery_.down() && !refused_before_) executor_->WaitUntilDue();
  TakeRequests();
  Sweep(absl::Now());
  if (recovery_.down()) return Recover();
  if (options_.neighbours != nullptr) HandOver(absl::Now());
  if (!runs_.empty() || !flights_.empty() || CopiesDue()) return RunOneStep();
  last_wait_end_ = absl::InfinitePast();
  // What a draft model does meanwhile is in the status.
  if (speculator_ != nullptr) Publish();
  // A worker that dies while nothing runs is found before a request has to find it.
  absl::Status status = executor_->CheckWorkers();
  if (!status.ok()) recovery_.MarkLost(std::move(status));
}

void Engine::TakeRequests() {
  for (SubmittedRequest& submitted : admission_.Take()) Accept(std::move(submitted));
}

void Engine::Accept(SubmittedRequest submitted) {
  if (submitted.moved != nullptr) return Continue(std::move(submitted.moved));
  const uint64_t id = submitted.id;
  auto run = std::make_unique<RequestRun>(std::move(submitted.request), tokenizer_,
                                          std::move(submitted.stream), submitted.submitted);
  for (EngineObserver* observer : options_.observers) {
    observer->RequestAccepted(id, run->request(), run->arrived());
  }
  // Its first tokens may be forced: they come with the prompt.
  if (run->constrained()) {
    PostWork(id, *run);
    runs_.emplace(id, std::move(run));
    return;
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
    } else if (!run->started()) {
      absl::Status wait = recovery_.CheckWait(run->submitted(), now);
      if (!wait.ok()) ended.emplace_back(id, std::move(wait));
    }
  }
  for (auto& [id, status] : ended) End(id, std::move(status));
}

void Engine::End(uint64_t id, absl::Status status, v1::FinishReason reason) {
  const auto found = runs_.find(id);
  RequestRun& run = *found->second;
  const std::shared_ptr<TokenStream> stream = run.stream();
  if (!status.ok() && !absl::IsCancelled(status)) {
    LogWarning("request failed",
               {{"request_id", run.request().request_id}, {"status", status.ToString()}});
  }
  // After NaN logits nobody may reuse that KV, neither here nor where it was sent.
  const bool bad_kv = absl::IsDataLoss(status);
  if (options_.neighbours != nullptr && !bad_kv) TellKept(id, run.request());
  if (run.has_work) constraint_pool_.Forget(id);
  scheduler_->Remove(id);
  sender_.Forget(id, bad_kv ? KvHandOver::End::kBadKv : KvHandOver::End::kGivenUp);
  if (speculator_ != nullptr) speculator_->End(id);
  if (bad_kv) scheduler_->ForgetPrefixes();
  const absl::Time now = absl::Now();
  if (!options_.observers.empty()) ReportEnd(id, run, status, reason, now);
  const uint32_t max_tokens = run.request().embedding ? 0 : run.request().max_tokens;
  if (status.ok() && max_tokens > 0) {
    admission_.AnswerEnded(run.num_decided(), reason == v1::FINISH_REASON_LENGTH);
  }
  StreamEnd end{std::move(status), reason, run.MakeUsage(now), run.TakeEmbedding()};
  end.usage.set_replica(options_.replica);
  runs_.erase(found);
  // What the reader can ask about must be true by the time it learns of the end, and it may be
  // looking already, for the tokens before.
  Publish();
  admission_.Ended(id);
  stream->End(std::move(end));
  notifier_->Post(stream);
}

void Engine::EndAll(const absl::Status& status, absl::Time submitted_before) {
  std::vector<uint64_t> ids;
  for (const auto& [id, run] : runs_) {
    if (run->submitted() < submitted_before) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  for (const uint64_t id : ids) End(id, status);
}

void Engine::Publish() {
  snapshot_.load = scheduler_->load();
  snapshot_.counters = scheduler_->counters() + counters_;
  PublishDrafters();
  MutexLock lock(mutex_);
  published_.load = snapshot_.load;
  published_.counters = snapshot_.counters;
  published_.drafters = snapshot_.drafters;
}

void Engine::PublishPlan() {
  snapshot_.load = scheduler_->load();
  snapshot_.counters = scheduler_->counters() + counters_;
  copies_kv_.store(!executor_->KvArea().empty(), std::memory_order_relaxed);
  max_picture_rows_.store(scheduler_->max_picture_rows(), std::memory_order_relaxed);
  rules_.max_sequence_len = scheduler_->max_sequence_len();
  admission_.SetMaxSequenceLen(rules_.max_sequence_len);
  snapshot_.placement = executor_->placement();
  snapshot_.notice = executor_->plan().notice;
  for (EngineObserver* observer : options_.observers) {
    observer->PlanInForce({.replica = options_.replica,
                           .plan = &executor_->plan(),
                           .num_layers = executor_->config().num_layers,
                           .epoch = executor_->epoch()});
  }
  MutexLock lock(mutex_);
  published_ = snapshot_;
}

}  // namespace tandem::gateway
