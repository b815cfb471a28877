#include "services/gateway/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::gateway {
namespace {

// More prefix scopes than these are rarely in the cache together.
constexpr size_t kMaxScopes = 4096;

absl::Status CheckPositive(const char* name, uint32_t value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("scheduler: %s is 0", name));
}

absl::Status CheckLimits(const StepLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_rows", limits.max_rows));
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_sequences", limits.max_sequences));
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_outputs", limits.max_outputs));
  TANDEM_RETURN_IF_ERROR(CheckPositive("max_logit_outputs", limits.max_logit_outputs));
  TANDEM_RETURN_IF_ERROR(CheckPositive("context_len", limits.context_len));
  TANDEM_RETURN_IF_ERROR(CheckPositive("block_tokens", limits.block_tokens));
  TANDEM_RETURN_IF_ERROR(CheckPositive("num_blocks[global]", limits.num_blocks[kGlobalGroup]));
  TANDEM_RETURN_IF_ERROR(CheckPositive("num_blocks[window]", limits.num_blocks[kWindowGroup]));
  const uint64_t table_len =
      2 * ((uint64_t{limits.context_len} + limits.block_tokens - 1) / limits.block_tokens);
  if (limits.max_table_len < table_len) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "scheduler: max_table_len is %d, one sequence of context_len %d alone takes %d",
        limits.max_table_len, limits.context_len, table_len));
  }
  return absl::OkStatus();
}

// Most tokens of a sequence that runs alone.  The last token is never computed and needs no KV.
uint32_t MaxSequenceLen(const StepLimits& limits, const KvPools& pools) {
  uint64_t tokens = limits.context_len;
  tokens = std::min(tokens, uint64_t{limits.num_blocks[kGlobalGroup]} * limits.block_tokens + 1);
  if (limits.num_blocks[kWindowGroup] < pools.WindowBlocksFor(1)) {
    tokens = std::min(tokens, uint64_t{limits.num_blocks[kWindowGroup]} * limits.block_tokens + 1);
  }
  return static_cast<uint32_t>(tokens);
}

uint32_t MaxRunningOf(const SchedulerOptions& options) {
  return std::min({options.max_sequences, options.limits.max_sequences, options.max_rows,
                   options.limits.max_rows});
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerOptions& options) {
  TANDEM_RETURN_IF_ERROR(CheckLimits(options.limits));
  TANDEM_RETURN_IF_ERROR(CheckPositive("option max_sequences", options.max_sequences));
  TANDEM_RETURN_IF_ERROR(CheckPositive("option max_rows", options.max_rows));
  TANDEM_RETURN_IF_ERROR(CheckPositive("option chunk_rows", options.chunk_rows));
  return std::unique_ptr<Scheduler>(new Scheduler(options));
}

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      pools_(options.limits),
      imports_(pools_),
      scopes_(kMaxScopes),
      max_sequence_len_(MaxSequenceLen(options.limits, pools_)),
      running_(pools_, tenants_, counters_) {
  running_.SetLimits(MaxRunning(), options_.chunk_rows);
}

uint32_t Scheduler::MaxRunning() const { return MaxRunningOf(options_); }

uint32_t Scheduler::MaxPictureRows(const SchedulerOptions& options) {
  if (options.limits.max_pictures == 0) return 0;
  const uint32_t max_rows = std::min(options.max_rows, options.limits.max_rows);
  return std::min(options.chunk_rows, max_rows - (MaxRunningOf(options) - 1));
}

bool Scheduler::PicturesFit(const std::vector<PictureSpan>& pictures) const {
  return std::ranges::all_of(pictures, [most = max_picture_rows()](const PictureSpan& picture) {
    return picture.num_rows <= most;
  });
}

absl::Status Scheduler::CheckFits(const SequenceSpec& spec, size_t num_tokens) const {
  if (num_tokens >= max_sequence_len_) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "context_length_exceeded: the prompt has %d tokens and must leave room for one more in "
        "a context of %d",
        num_tokens, max_sequence_len_));
  }
  if (!PicturesFit(spec.pictures)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a picture takes %d rows of one step, and steps here have room for %d beside other "
        "requests: raise --max-rows",
        spec.pictures.front().num_rows, max_picture_rows()));
  }
  if (sequences_.contains(spec.id)) {
    return absl::InvalidArgumentError(absl::StrFormat("sequence id %d is in use", spec.id));
  }
  return absl::OkStatus();
}

absl::Status Scheduler::Add(SequenceSpec spec) {
  if (spec.prompt.empty()) return absl::InvalidArgumentError("the prompt has no tokens");
  TANDEM_RETURN_IF_ERROR(CheckFits(spec, spec.prompt.size()));
  Wait(Enter(std::move(spec), num_arrivals_++));
  return absl::OkStatus();
}

Sequence& Scheduler::Enter(SequenceSpec spec, uint64_t arrival) {
  const uint64_t id = spec.id;
  Tenant& tenant = *tenants_.Enter(spec.tenant, last_step_id_);
  const uint64_t scope = scopes_.Of(spec.prefix_scope);
  auto sequence = std::make_unique<Sequence>(std::move(spec), arrival, tenant, pools_,
                                             options_.prefix_cache, scope);
  ++num_by_priority_[sequence->priority];
  return *sequences_.emplace(id, std::move(sequence)).first->second;
}

void Scheduler::Wait(Sequence& sequence) {
  std::deque<Sequence*>& waiting = sequence.tenant.waiting;
  // Mostly the last.
  auto place = waiting.end();
  while (place != waiting.begin() && sequence.WaitsBefore(**std::prev(place))) --place;
  waiting.insert(place, &sequence);
}

void Scheduler::Remove(uint64_t id) {
  imports_.End(id);
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence* const sequence = found->second.get();
  Tenant& tenant = sequence->tenant;
  std::erase(tenant.waiting, sequence);
  running_.Remove(*sequence);
  const auto counted = num_by_priority_.find(sequence->priority);
  if (--counted->second == 0) num_by_priority_.erase(counted);
  sequences_.erase(found);
  tenants_.Leave(&tenant);
}

Sequence* Scheduler::Find(uint64_t id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

absl::StatusOr<std::vector<uint64_t>> Scheduler::RecomputeAll(const StepLimits& limits) {
  TANDEM_RETURN_IF_ERROR(CheckLimits(limits));
  under_way_.clear();
  imports_.Clear();
  for (Tenant* tenant : tenants_.InTurn()) {
    tenant->waiting.clear();
    tenant->num_running = 0;
  }
  options_.limits = limits;
  std::vector<uint64_t> misfits;
  for (auto& [id, sequence] : sequences_) {
    sequence->blocks.FreeAll();
    const uint32_t computed = std::min(sequence->num_computed, sequence->num_known);
    sequence->lost_until = std::max(sequence->lost_until, computed);
    sequence->num_computed = sequence->furthest = sequence->safe_until = 0;
    sequence->tokens.resize(sequence->num_known);
    sequence->awaits_result = sequence->awaits_draft = sequence->awaits_take = false;
    sequence->keep_window = Sequence::kNoPosition;
    sequence->draft.clear();
    sequence->next_prompt_output = sequence->prompt_outputs_done;
    sequence->tenant.waiting.push_back(sequence.get());
  }
  pools_.Reset(limits);
  running_.Clear();
  running_.SetLimits(MaxRunning(), options_.chunk_rows);
  max_sequence_len_ = MaxSequenceLen(limits, pools_);
  for (Tenant* tenant : tenants_.InTurn()) {
    std::sort(tenant->waiting.begin(), tenant->waiting.end(),
              [](const Sequence* a, const Sequence* b) { return a->WaitsBefore(*b); });
    for (const Sequence* sequence : tenant->waiting) {
      if (sequence->tokens.size() >= max_sequence_len_ || !PicturesFit(sequence->pictures)) {
        misfits.push_back(sequence->id);
      }
    }
  }
  for (const uint64_t id : misfits) Remove(id);
  return misfits;
}

SchedulerLoad Scheduler::load() const {
  SchedulerLoad load{.running = running_.size(),
                     .waiting = static_cast<uint32_t>(sequences_.size() - running_.size())};
  for (const KvGroup group : {kGlobalGroup, kWindowGroup}) {
    load.blocks_total[group] = pools_.pools[group].num_blocks();
    load.blocks_used[group] = pools_.pools[group].num_used();
    load.blocks_cached[group] = pools_.pools[group].num_cached();
    load.blocks_evicted[group] = pools_.num_evicted[group];
  }
  return load;
}

}  // namespace tandem::gateway
