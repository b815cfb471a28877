#include "services/gateway/draft/draft_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/draft/draft_vocabulary.h"
#include "services/gateway/executor/model_changed.h"

namespace tandem::gateway {
namespace {

// What a step is expected to take before one has run.
constexpr absl::Duration kFirstStep = absl::Milliseconds(2);

bool IsMissing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// A token that the draft has never seen in a text.
uint32_t UnknownToken(const Vocabulary& vocabulary) {
  for (const TokenType type : {TokenType::kControl, TokenType::kUnknown, TokenType::kUnused}) {
    const auto found = std::ranges::find(vocabulary.types, type);
    if (found != vocabulary.types.end()) {
      return static_cast<uint32_t>(found - vocabulary.types.begin());
    }
  }
  return 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DraftModel>> DraftModel::Create(Options options,
                                                               const Vocabulary& model,
                                                               const Executor::Progress& progress) {
  std::unique_ptr<DraftModel> draft(new DraftModel(std::move(options), model));
  const absl::Status loaded = draft->Load(progress);
  if (!loaded.ok() && !IsMissing(loaded)) return loaded;
  if (!loaded.ok()) draft->Lose(loaded);
  draft->thread_ = std::thread([self = draft.get()] { self->Run(); });
  return draft;
}

DraftModel::DraftModel(Options options, const Vocabulary& model)
    : options_(std::move(options)),
      model_(model),
      pause_(options_.min_pause),
      step_ns_(absl::ToInt64Nanoseconds(kFirstStep)) {}

DraftModel::~DraftModel() { Stop(); }

void DraftModel::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
  executor_.reset();
}

absl::Status DraftModel::Load(const Executor::Progress& progress) {
  const Executor::Progress report = [&](std::string_view phase, double fraction) {
    if (progress) progress(absl::StrFormat("draft: %s", std::string(phase)), fraction);
  };
  if (executor_ == nullptr) {
    TANDEM_ASSIGN_OR_RETURN(auto executor, options_.start(report));
    TANDEM_RETURN_IF_ERROR(CheckDraftVocabulary(model_, executor->vocabulary(), options_.name));
    executor_ = std::move(executor);
  } else {
    TANDEM_RETURN_IF_ERROR(executor_->Recover(report));
  }
  const DraftVocabularies vocabularies{.target_size = static_cast<uint32_t>(model_.pieces.size()),
                                       .draft_size = executor_->config().vocab_size,
                                       .unknown_token = UnknownToken(executor_->vocabulary()),
                                       .stop_tokens = executor_->config().stop_token_ids};
  LogInfo("draft model ready", {{"model", options_.name}, {"placement", executor_->placement()}});
  MutexLock lock(mutex_);
  batch_.Reset(executor_->limits(), vocabularies);
  placement_ = executor_->placement();
  trouble_.clear();
  news_ = true;
  return absl::OkStatus();
}

void DraftModel::Lose(const absl::Status& why) {
  LogWarning("drafting without the draft model stops",
             {{"model", options_.name}, {"reason", std::string(why.message())}});
  MutexLock lock(mutex_);
  trouble_ = std::string(why.message());
  ++counters_.losses;
  batch_.LoseCache();
  batch_.EndChains();
  PublishChains();
}

void DraftModel::Recover() {
  const absl::Status loaded = Load([this](std::string_view phase, double fraction) {
    MutexLock lock(mutex_);
    trouble_ = absl::StrFormat("%s: %.0f%%", std::string(phase), 100.0 * fraction);
  });
  if (loaded.ok()) {
    pause_ = options_.min_pause;
    return;
  }
  pause_ = std::min(2 * pause_, options_.max_pause);
  LogWarning("the draft model is not back",
             {{"model", options_.name}, {"reason", std::string(loaded.message())}});
  MutexLock lock(mutex_);
  trouble_ = std::string(loaded.message());
  if (IsModelChanged(loaded)) executor_ = nullptr;  // the next attempt loads the file anew
}

bool DraftModel::Wait(absl::Duration patience) {
  const absl::Time deadline = absl::Now() + patience;
  MutexLock lock(mutex_);
  while (!stopping_ && !news_ && changed_.WaitUntil(mutex_, deadline)) {
  }
  news_ = false;
  return !stopping_;
}

void DraftModel::Run() {
  while (true) {
    bool lost = false;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      lost = !trouble_.empty();
      if (lost) news_ = false;
    }
    if (lost) {
      const absl::Time next = absl::Now() + pause_;
      while (absl::Now() < next) {
        if (!Wait(next - absl::Now())) return;
      }
      Recover();
      continue;
    }
    if (RunStep()) continue;
    const absl::Time asked = absl::Now();
    if (!Wait(options_.idle_check)) return;
    if (absl::Now() - asked < options_.idle_check) continue;
    const absl::Status there = executor_->CheckWorkers();
    if (!there.ok()) Lose(there);
  }
}

bool DraftModel::RunStep() {
  uint32_t num_rows = 0;
  bool guesses = false;
  std::vector<DraftStep::Rows> rows;
  ObserveDraftStep observe;
  {
    MutexLock lock(mutex_);
    news_ = false;
    StepBatch step;
    const bool built = batch_.has_work() && batch_.Build(++step_id_, step);
    PublishChains();  // those that cannot go on
    if (!built) return false;
    num_rows = step.header.num_rows;
    guesses = step.header.num_outputs > 0;
    observe = observe_;
    if (observe) rows = batch_.rows();
    WriteStep(step, executor_->StepArea(0));
  }
  const absl::Time begin = absl::Now();
  executor_->Submit({.lane = 0, .step_id = step_id_});
  const auto ran = executor_->Wait();
  const absl::Time end = absl::Now();
  const absl::Duration took = end - begin;
  if (!ran.ok()) {
    Lose(ran.status());
    return true;
  }
  if (observe) {
    observe({.step_id = step_id_,
             .begin = begin,
             .end = end,
             .rows = rows,
             .segments = *ran,
             .plan = &executor_->plan()});
  }
  if (guesses) {
    const int64_t before = step_ns_.load(std::memory_order_relaxed);
    step_ns_.store(before + (absl::ToInt64Nanoseconds(took) - before) / 8,
                   std::memory_order_relaxed);
  }
  MutexLock lock(mutex_);
  batch_.TakeResults([this](uint32_t o) -> const OutputResult& { return executor_->Output(0, o); });
  ++counters_.steps;
  counters_.rows += num_rows;
  counters_.busy_seconds += absl::ToDoubleSeconds(took);
  PublishChains();
  return true;
}

void DraftModel::PublishChains() {
  if (batch_.chains.empty()) return;
  for (DraftChain& chain : batch_.chains) {
    if (!chain.tokens.empty()) ++counters_.chains;
    counters_.guesses += chain.tokens.size();
    ready_.push_back(std::move(chain));
  }
  batch_.chains.clear();
  drafted_.SignalAll();
}

std::string_view DraftModel::trouble() const {
  MutexLock lock(mutex_);
  shown_trouble_ = trouble_;
  return shown_trouble_;
}

void DraftModel::Observe(const ObserveDraftStep& observe) {
  MutexLock lock(mutex_);
  observe_ = observe;
}

void DraftModel::Begin(const DraftSequence& sequence) {
  MutexLock lock(mutex_);
  batch_.Begin(sequence);
  news_ = true;
  changed_.SignalOne();
}

void DraftModel::Decided(uint64_t sequence, std::span<const uint32_t> tokens,
                         uint32_t /*num_accepted*/) {
  MutexLock lock(mutex_);
  batch_.Decided(sequence, tokens);
  PublishChains();
}

void DraftModel::End(uint64_t sequence) {
  MutexLock lock(mutex_);
  batch_.End(sequence);
  std::erase_if(ready_, [sequence](const DraftChain& c) { return c.sequence == sequence; });
}

absl::Duration DraftModel::TimeFor(uint32_t /*num_sequences*/, uint32_t max_guesses) const {
  return max_guesses * absl::Nanoseconds(step_ns_.load(std::memory_order_relaxed));
}

void DraftModel::Ask(std::span<const DraftRequest> requests) {
  MutexLock lock(mutex_);
  for (const DraftRequest& request : requests) {
    const auto is_former = [&](const DraftChain& c) { return c.sequence == request.sequence; };
    std::erase_if(ready_, is_former);
    batch_.Ask(request);
  }
  if (!trouble_.empty()) batch_.EndChains();
  PublishChains();
  news_ = true;
  changed_.SignalOne();
}

void DraftModel::Take(absl::Time until, std::vector<DraftChain>& chains) {
  MutexLock lock(mutex_);
  while (batch_.num_asked() > 0 && drafted_.WaitUntil(mutex_, until)) {
  }
  std::ranges::move(ready_, std::back_inserter(chains));
  ready_.clear();
}

DraftCounters DraftModel::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

std::string DraftModel::about() const {
  const std::string where = placement();
  return where.empty() ? options_.name : absl::StrFormat("%s on %s", options_.name, where);
}

double DraftModel::busy_seconds() const {
  MutexLock lock(mutex_);
  return counters_.busy_seconds;
}

std::string DraftModel::placement() const {
  MutexLock lock(mutex_);
  return placement_;
}

}  // namespace tandem::gateway
