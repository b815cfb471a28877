#include "services/gateway/replicas/replicas.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

// Between two attempts to load a replica.
constexpr absl::Duration kPauseWhenMissing = absl::Milliseconds(500);
constexpr absl::Duration kPauseWhenFailed = absl::Seconds(10);
// Between two looks at a replica that leaves.
constexpr absl::Duration kLeaveInterval = absl::Milliseconds(20);

bool IsMissing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Replicas>> Replicas::Create(LoadedReplica first,
                                                           const Tokenizer& tokenizer,
                                                           EngineOptions options,
                                                           ReplicaStarts starts) {
  TANDEM_CHECK(first.replica < starts.all.size());
  const bool alone = starts.all.size() == 1 && !starts.change;
  std::unique_ptr<Replicas> made(
      new Replicas(tokenizer, std::move(options), alone, starts.shows_lone));
  made->model_id_ = first.executor->model().model_id();
  made->block_tokens_ = first.executor->limits().block_tokens;
  const auto count = static_cast<uint32_t>(starts.all.size());
  {
    MutexLock lock(made->mutex_);
    for (ReplicaStart& start : starts.all) made->Add(std::move(start));
  }
  TANDEM_RETURN_IF_ERROR(made->Join(first.replica, std::move(first.executor)));
  MutexLock lock(made->mutex_);
  for (uint32_t r = 0; r < count; ++r) {
    if (r == first.replica) continue;
    made->replicas_[r]->starter = std::thread([all = made.get(), r] { all->Start(r); });
  }
  return made;
}

Replicas::Replicas(const Tokenizer& tokenizer, EngineOptions options, bool alone, bool shows_lone)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      alone_(alone),
      shows_lone_(shows_lone),
      observers_(options_.observers) {}

Replicas::~Replicas() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    stop_.SignalAll();
    for (const auto& replica : replicas_) {
      threads.push_back(std::move(replica->starter));
      threads.push_back(std::move(replica->leaver));
    }
  }
  for (std::thread& thread : threads) {
    if (thread.joinable()) thread.join();
  }
  Stop();
  // An engine's thread may still look for others.
  std::vector<std::shared_ptr<Engine>> ending = engines();
  {
    MutexLock lock(mutex_);
    for (const auto& replica : replicas_) replica->engine = nullptr;
  }
  ending.clear();
}

Replicas::Replica& Replicas::Add(ReplicaStart start) {
  const auto number = static_cast<uint32_t>(replicas_.size());
  Replica& replica = *replicas_.emplace_back(std::make_unique<Replica>());
  replica.start = std::move(start);
  replica.others = std::make_unique<Others>(*this, number);
  return replica;
}

Replicas::Replica& Replicas::At(uint32_t r) const {
  MutexLock lock(mutex_);
  return *replicas_[r];
}

EngineOptions Replicas::OptionsOf(uint32_t r) {
  const Replica& replica = At(r);
  EngineOptions options = options_;
  if (replica.start.make_drafters) options.make_drafters = replica.start.make_drafters;
  if (alone_) return options;
  if (!options.observers.empty()) options.observers = {&observers_};
  options.neighbours = replica.others.get();
  options.replica = r;
  options.hands_over = replica.start.role == ReplicaRole::kPrompts;
  options.ids = ids_;
  options.notifier = notifier_;
  options.on_ready_change = [this, r](bool ready) { OnReadyChange(r, ready); };
  options.on_model_changed = [this, r] { OnModelChanged(r); };
  return options;
}

absl::Status Replicas::Join(uint32_t r, std::unique_ptr<Executor> executor) {
  if (executor->model().model_id() != model_id_) {
    return absl::FailedPreconditionError(
        "the model's file has changed since the other replicas loaded it: restart the gateway to "
        "serve the file as it is now");
  }
  const uint32_t num_blocks = executor->limits().num_blocks[kGlobalGroup];
  const std::string placement = executor->placement();
  TANDEM_ASSIGN_OR_RETURN(std::shared_ptr<Engine> engine,
                          Engine::Create(std::move(executor), tokenizer_, OptionsOf(r)));
  if (!alone_) LogInfo("replica joined", {{"replica", r}, {"placement", placement}});
  MutexLock lock(mutex_);
  Replica& replica = *replicas_[r];
  replica.engine = std::move(engine);
  if (replica.leaving) replica.engine->HandAllOver();
  replica.ready = true;
  replica.detail.clear();
  directory_.SetCapacity(r, num_blocks);
  return absl::OkStatus();
}

void Replicas::Start(uint32_t r) {
  while (true) {
    const absl::Status status = StartOnce(r);
    if (status.ok()) return;
    LogWarning("replica not loaded", {{"replica", r}, {"status", status.ToString()}});
    SetState(r, IsMissing(status) ? "loading" : "failed", std::string(status.message()));
    MutexLock lock(mutex_);
    const Replica& replica = *replicas_[r];
    const absl::Time next =
        absl::Now() + (IsMissing(status) ? kPauseWhenMissing : kPauseWhenFailed);
    while (!stopping_ && !replica.leaving && stop_.WaitUntil(mutex_, next)) {
    }
    if (stopping_ || replica.leaving) return;
  }
}

absl::Status Replicas::StartOnce(uint32_t r) {
  const auto progress = [this, r](std::string_view phase, double fraction) {
    SetState(r, "loading", absl::StrFormat("%s: %.0f%%", std::string(phase), 100.0 * fraction));
  };
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<Executor> executor, At(r).start.start(progress));
  return Join(r, std::move(executor));
}

void Replicas::Update(std::vector<ReplicaStart> wanted) {
  TANDEM_CHECK(!alone_ && !wanted.empty());
  MutexLock lock(mutex_);
  if (stopping_) return;
  const auto has = [](const std::vector<ReplicaStart>& starts, const std::string& key) {
    return std::ranges::find(starts, key, &ReplicaStart::key) != starts.end();
  };
  std::vector<std::string> there;
  for (uint32_t r = 0; r < replicas_.size(); ++r) {
    Replica& replica = *replicas_[r];
    if (replica.leaving) continue;
    there.push_back(replica.start.key);
    if (has(wanted, replica.start.key)) continue;
    LogInfo("replica leaves", {{"replica", r}, {"workers", replica.start.key}});
    replica.leaving = true;
    if (replica.engine != nullptr) replica.engine->HandAllOver();
    replica.leaver = std::thread([this, r] { Leave(r); });
  }
  for (ReplicaStart& start : wanted) {
    if (std::ranges::find(there, start.key) != there.end()) continue;
    const auto r = static_cast<uint32_t>(replicas_.size());
    LogInfo("replica comes", {{"replica", r}, {"workers", start.key}});
    Add(std::move(start)).starter = std::thread([this, r] { Start(r); });
  }
  stop_.SignalAll();
}

void Replicas::Leave(uint32_t r) {
  std::thread starter;
  {
    MutexLock lock(mutex_);
    starter = std::move(replicas_[r]->starter);
  }
  if (starter.joinable()) starter.join();
  std::shared_ptr<Engine> engine;
  {
    MutexLock lock(mutex_);
    Replica& replica = *replicas_[r];
    const auto busy = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return replica.engine != nullptr && !replica.ended &&
             (replica.engine->num_requests() > 0 || !AnyServesBut(r));
    };
    bool drained = false;
    // As long as no other serves, it takes requests.
    while (!stopping_ && (busy() || !std::exchange(drained, true))) {
      // One that was on its way to it is refused from here on, and goes to another.
      if (drained && replica.engine != nullptr) {
        replica.engine->Drain(absl::ZeroDuration());
        replica.engine->Close();
      }
      stop_.WaitUntil(mutex_, absl::Now() + kLeaveInterval);
    }
    if (stopping_) return;
    replica.ready = false;
    replica.gone = true;
    engine = std::move(replica.engine);
    directory_.Forget(r);
  }
  // What stays there would take memory of those that come.
  if (engine != nullptr) engine->UnloadAtEnd();
  engine = nullptr;
  LogInfo("replica left", {{"replica", r}});
}

void Replicas::SetState(uint32_t r, std::string state, std::string detail) {
  MutexLock lock(mutex_);
  replicas_[r]->state = std::move(state);
  replicas_[r]->detail = std::move(detail);
}

void Replicas::OnReadyChange(uint32_t r, bool ready) {
  {
    MutexLock lock(mutex_);
    replicas_[r]->ready = ready;
    if (!ready) directory_.Forget(r);
    ready = std::ranges::any_of(replicas_, [](const auto& replica) { return replica->ready; });
  }
  if (options_.on_ready_change) options_.on_ready_change(ready);
}

void Replicas::OnModelChanged(uint32_t r) {
  bool last = false;
  {
    MutexLock lock(mutex_);
    Replica& replica = *replicas_[r];
    replica.ready = false;
    replica.ended = true;
    replica.state = "failed";
    replica.detail =
        "the model's file has changed and this replica's weights are lost: restart the gateway to "
        "serve the file as it is now";
    last = std::ranges::none_of(
        replicas_, [](const auto& other) { return other->engine != nullptr && !other->ended; });
  }
  if (last && options_.on_model_changed) options_.on_model_changed();
}

std::vector<std::shared_ptr<Engine>> Replicas::engines() const {
  std::vector<std::shared_ptr<Engine>> found;
  MutexLock lock(mutex_);
  for (const auto& replica : replicas_) found.push_back(replica->engine);
  return found;
}

void Replicas::ReportRefused(Api api, const absl::Status& status) const {
  for (EngineObserver* observer : options_.observers) observer->RequestRefused(api, status);
}

void Replicas::Drain(absl::Duration patience) {
  const absl::Time until = absl::Now() + patience;
  // All refuse new requests at once; then they are waited for, one after another.
  for (const auto& engine : engines()) {
    if (engine != nullptr) engine->Drain(absl::ZeroDuration());
  }
  // Again, because one may hand requests to another that has none left.
  bool empty = false;
  while (!std::exchange(empty, true)) {
    for (const auto& engine : engines()) {
      if (engine == nullptr) continue;
      engine->Drain(std::max(until - absl::Now(), absl::ZeroDuration()));
    }
    for (const auto& engine : engines()) empty &= engine == nullptr || engine->num_requests() == 0;
    if (absl::Now() >= until) return;
  }
}

void Replicas::Stop() {
  for (const auto& engine : engines()) {
    if (engine != nullptr) engine->Stop();
  }
}

}  // namespace tandem::gateway
