#include "services/gateway/constraint/constraint_cache.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/constraint/work_time.h"

namespace tandem::gateway::constraint {

ConstraintCache::ConstraintCache(std::shared_ptr<const TokenTrie> trie,
                                 const ConstraintCacheOptions& options)
    : trie_(std::move(trie)), options_(options), store_(options.max_bytes) {
  for (size_t i = 0; i < std::max<size_t>(options_.num_threads, 1); ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

ConstraintCache::~ConstraintCache() {
  Stop(absl::CancelledError("constraint: the server is stopping"));
  for (std::thread& thread : threads_) thread.join();
}

ConstraintCache::Ticket ConstraintCache::Get(ConstraintSource source, Done done,
                                             const ConstraintCaller& caller) {
  absl::Status checked = CheckSource(source, options_.limits);
  if (!checked.ok()) {
    done(checked);
    return kNoTicket;
  }
  std::string key = source.Key();
  std::optional<Result> result;
  Ticket ticket = kNoTicket;
  bool hit = false;
  {
    MutexLock lock(mutex_);
    const auto others = jobs_.find(key);
    if (stopping_) {
      result = stop_reason_;
    } else if ((result = store_.Find(key, absl::Now())).has_value()) {
      hit = true;
    } else if (absl::Status full = CheckPlace(caller.tenant); !full.ok()) {
      result = std::move(full);
    } else {
      hit = others != jobs_.end();
      JobPtr job;
      if (hit) {
        job = others->second;
      } else {
        job = std::make_shared<Job>();
        job->key = std::move(key);
        job->source = std::move(source);
        jobs_[job->key] = job;
      }
      if (!job->running) Enqueue(job, caller.tenant);
      ticket = next_ticket_++;
      job->waiters[ticket] = {std::move(done), caller};
      tickets_[ticket] = std::move(job);
      ++waiting_of_tenant_[caller.tenant];
      next_deadline_ = std::min(next_deadline_, caller.deadline);
    }
    if (hit) ++hits_;
  }
  if (hit && options_.on_hit) options_.on_hit();
  if (result.has_value()) done(*result);
  return ticket;
}

void ConstraintCache::Cancel(Ticket ticket) {
  Done done;
  {
    MutexLock lock(mutex_);
    done = TakeWaiter(ticket);
  }
  if (done) done(absl::CancelledError("constraint: the client has gone"));
}

void ConstraintCache::Stop(const absl::Status& reason) {
  std::map<Ticket, Done> left;
  TurnQueue<JobPtr> quick, slow;  // destroyed without the lock
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    stop_reason_ = reason;
    for (const auto& [ticket, job] : tickets_) {
      left[ticket] = std::move(job->waiters.at(ticket).done);
    }
    for (const auto& [key, job] : jobs_) job->waiters.clear();
    jobs_.clear();
    tickets_.clear();
    waiting_of_tenant_.clear();
    std::swap(quick, quick_);
    std::swap(slow, slow_);
    wake_.SignalAll();
  }
  store_.Clear();
  for (const auto& [ticket, done] : left) done(reason);
}

void ConstraintCache::Run() {
  while (const JobPtr job = NextJob()) {
    const absl::Time begin = absl::Now(), work_begin = WorkTime();
    const absl::Duration most =
        job->slow ? options_.compile_time : std::min(options_.quick_time, options_.compile_time);
    Result result = Compile(*job, work_begin + most);
    const absl::Duration took = absl::Now() - begin;
    const bool too_long =
        absl::IsResourceExhausted(result.status()) && WorkTime() - work_begin >= most;
    if (too_long && most < options_.compile_time) {
      GoOnSlowly(job, took);
    } else {
      EndJob(job, std::move(result), took, too_long);
    }
  }
}

void ConstraintCache::Enqueue(const JobPtr& job, const std::string& tenant) {
  if (!job->queued_for.insert(tenant).second) return;
  (job->slow ? slow_ : quick_).Push(tenant, job);
  wake_.SignalOne();
}

ConstraintCache::JobPtr ConstraintCache::NextJob() {
  const size_t max_slow = std::max<size_t>(options_.num_threads / 2, 1);
  MutexLock lock(mutex_);
  while (!stopping_) {
    // If no slow one is under way, a slow one goes first, so that it does not wait for ever.
    const bool has_slow = !slow_.empty() && num_slow_ < max_slow;
    const bool slow = has_slow && (quick_.empty() || num_slow_ == 0);
    if (!slow && quick_.empty()) {
      wake_.Wait(mutex_);
      continue;
    }
    JobPtr job = (slow ? slow_ : quick_).Pop();
    if (job->waiters.empty() || job->running || job->slow != slow) continue;
    job->running = true;
    if (slow) ++num_slow_;
    return job;
  }
  return nullptr;
}

ConstraintCache::Result ConstraintCache::Compile(const Job& job, absl::Time deadline) {
  CompileLimits limits = options_.limits;
  limits.deadline = std::min(limits.deadline, deadline);
  const CancellationScope scope([this, &job] { return Abandoned(job); });
  TANDEM_ASSIGN_OR_RETURN(Grammar grammar, options_.compile(job.source, limits));
  return Constraint::Create(std::move(grammar), trie_, options_.matcher);
}

void ConstraintCache::GoOnSlowly(const JobPtr& job, absl::Duration took) {
  MutexLock lock(mutex_);
  job->spent += took;
  job->running = false;
  job->slow = true;
  job->queued_for.clear();
  for (const auto& [ticket, waiter] : job->waiters) Enqueue(job, waiter.caller.tenant);
}

void ConstraintCache::EndJob(const JobPtr& job, Result result, absl::Duration took, bool too_long) {
  {
    MutexLock lock(mutex_);
    if (job->slow) {
      --num_slow_;
      wake_.SignalOne();
    }
    if (stopping_) return;  // Stop has answered
    job->spent += took;
    ++compiled_;
  }
  if (absl::IsResourceExhausted(result.status())) {
    // Trying again would not help.
    result = absl::InvalidArgumentError(absl::StrFormat(
        "%s (%s of a processor and %d bytes at most); simplify it",
        std::string(result.status().message()), absl::FormatDuration(options_.compile_time),
        options_.limits.grammar_bytes));
  }
  // Before the job is forgotten, so that nobody compiles the source again.
  if (!absl::IsCancelled(result.status())) {
    store_.Keep(job->key, result,
                too_long ? absl::Now() + options_.keep_timeouts : absl::InfiniteFuture());
  }
  if (options_.on_compiled) options_.on_compiled(result.status(), job->spent);
  std::vector<Done> waiters;
  {
    MutexLock lock(mutex_);
    while (!job->waiters.empty()) waiters.push_back(TakeWaiter(job->waiters.begin()->first));
  }
  for (const Done& done : waiters) done(result);
}

bool ConstraintCache::Abandoned(const Job& job) {
  std::vector<Done> late;
  bool abandoned = false;
  {
    MutexLock lock(mutex_);
    const absl::Time now = absl::Now();
    if (now >= next_deadline_) late = TakeLate(now);
    abandoned = job.waiters.empty();
  }
  for (const Done& done : late) {
    done(absl::DeadlineExceededError(
        "constraint: the deadline passed while it was compiled or waited for that"));
  }
  return abandoned;
}

absl::Status ConstraintCache::CheckPlace(const std::string& tenant) const {
  const auto own = waiting_of_tenant_.find(tenant);
  const size_t num_own = own == waiting_of_tenant_.end() ? 0 : own->second;
  if (tickets_.size() < options_.max_waiting && num_own < options_.max_waiting_of_tenant) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "constraint: %d requests wait for the compilation of theirs, %d at most; %d of them are this "
      "client's, %d at most; retry later",
      tickets_.size(), options_.max_waiting, num_own, options_.max_waiting_of_tenant));
}

ConstraintCache::Done ConstraintCache::TakeWaiter(Ticket ticket) {
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return nullptr;
  const JobPtr job = std::move(found->second);
  tickets_.erase(found);
  const auto waiter = job->waiters.find(ticket);
  Done done = std::move(waiter->second.done);
  const auto own = waiting_of_tenant_.find(waiter->second.caller.tenant);
  if (--own->second == 0) waiting_of_tenant_.erase(own);
  job->waiters.erase(waiter);
  if (job->waiters.empty()) {
    Forget(*job);
    if (!job->running) job->source = {};  // the queue may hold the job for a while
  }
  return done;
}

std::vector<ConstraintCache::Done> ConstraintCache::TakeLate(absl::Time now) {
  std::vector<Ticket> late;
  next_deadline_ = absl::InfiniteFuture();
  for (const auto& [ticket, job] : tickets_) {
    const absl::Time deadline = job->waiters.at(ticket).caller.deadline;
    if (now >= deadline) {
      late.push_back(ticket);
    } else {
      next_deadline_ = std::min(next_deadline_, deadline);
    }
  }
  std::vector<Done> dones;
  for (const Ticket ticket : late) dones.push_back(TakeWaiter(ticket));
  return dones;
}

void ConstraintCache::Forget(const Job& job) {
  const auto known = jobs_.find(job.key);
  if (known != jobs_.end() && known->second.get() == &job) jobs_.erase(known);
}

ConstraintCache::Counts ConstraintCache::counts() const {
  const ConstraintStore::Counts kept = store_.counts();
  MutexLock lock(mutex_);
  return {kept.num_kept, kept.bytes, tickets_.size(), hits_, compiled_};
}

}  // namespace tandem::gateway::constraint
