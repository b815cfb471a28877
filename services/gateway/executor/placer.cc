#include "services/gateway/executor/placer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/executor/placement_trial.h"

namespace tandem::gateway {
namespace {

// Leaves out what cuts the context of requests shorter than another does.
void KeepLongestContext(std::vector<Placement>& placements) {
  uint32_t longest = 0;
  for (const Placement& placement : placements) {
    longest = std::max(longest, placement.limits.context_len);
  }
  std::erase_if(placements, [longest](const Placement& placement) {
    return placement.limits.context_len < longest;
  });
}

// What a plan's costs depend on.
std::string KeyOf(const Placement& placement, const std::string& description,
                  const std::string& key) {
  const StepLimits& limits = placement.limits;
  std::string of = absl::StrFormat("%s; %s; %d rows, %d sequences, %d positions, KV %s", key,
                                   description, limits.max_rows, limits.max_sequences,
                                   limits.context_len, std::string(Traits(limits.kv_dtype).name));
  for (const WorkerDescription& worker : placement.plan.workers) {
    if (!worker.driver.empty()) absl::StrAppend(&of, "; ", worker.name, " by ", worker.driver);
  }
  return of;
}

// Nothing: a step that says little, for it does several things.
std::optional<StepShape> ShapeOf(const StepBatch& step, bool overlaps) {
  if (step.rows.empty() || !step.pictures.empty() || step.header.want_logits != 0) return {};
  const bool decodes = step.outputs.size() == step.rows.size();
  if (!decodes && (step.sequences.size() != 1 || step.outputs.size() > 1)) return {};
  uint64_t positions = 0;
  for (const RowEntry& row : step.rows) positions += row.position;
  return StepShape{.decodes = decodes,
                   .rows = static_cast<uint32_t>(step.rows.size()),
                   .depth = static_cast<uint32_t>(positions / step.rows.size()),
                   .overlaps = overlaps};
}

}  // namespace

Placer::Placer(const ExecutorOptions& options)
    : favour_throughput_(options.favour_throughput),
      measures_(options.policy.npu == NpuPolicy::kAuto),
      file_(options.costs_file),
      choice_(options.choice) {}

const Placement& Placer::Choose(const ModelConfig& config, std::vector<Placement> placements,
                                const std::string& key, absl::Time now) {
  TANDEM_CHECK(!placements.empty());
  KeepLongestContext(placements);
  const auto key_of = [&](const Placement& placement) {
    return KeyOf(placement, DescribePlacement(placement.plan, config), key);
  };
  const auto failed = [&](const Placement& placement) {
    return failed_.contains(key_of(placement));
  };
  if (!std::ranges::all_of(placements, failed)) std::erase_if(placements, failed);
  std::vector<PlacementCandidate> candidates;
  keys_.clear();
  for (const Placement& placement : placements) {
    PlacementCandidate candidate{.description = DescribePlacement(placement.plan, config)};
    for (const WorkerDescription& worker : placement.plan.workers) {
      candidate.workers.push_back(worker.name);
    }
    keys_.push_back(key_of(placement));
    const auto known = known_.find(keys_.back());
    candidate.costs = known != known_.end() ? std::optional<PlacementCosts>(known->second)
                                            : file_.Find(keys_.back(), candidate.workers.size());
    candidates.push_back(std::move(candidate));
  }
  placements_ = std::move(placements);
  choice_.SetCandidates(std::move(candidates),
                        LoadWithin(placements_.front().limits, favour_throughput_));
  chosen_ = choosing() ? choice_.Untried().value_or(0) : 0;
  if (choosing() && !choice_.Untried().has_value()) chosen_ = choice_.Best(now);
  return placements_[chosen_];
}

bool Placer::untried() const {
  const bool shared = measures_ && placements_[chosen_].plan.workers.size() > 1;
  return (choosing() || shared) && !choice_.candidates()[chosen_].costs.has_value();
}

bool Placer::HalvesPay(uint32_t decoding) const {
  const std::optional<PlacementCosts>& costs = choice_.candidates()[chosen_].costs;
  return costs.has_value() && gateway::HalvesPay(*costs, decoding);
}

absl::Status Placer::Try(Executor& executor) {
  auto costs = TryPlacement(executor, choice_.load());
  if (!costs.ok()) {
    if (absl::IsUnavailable(costs.status())) return costs.status();
    LogError("a placement fails, and is left out",
             {{"placement", choice_.candidates()[chosen_].description},
              {"reason", std::string(costs.status().message())}});
    failed_.insert(keys_[chosen_]);
    return failed_.size() < placements_.size() ? absl::OkStatus() : costs.status();
  }
  const absl::Status kept = file_.Put(keys_[chosen_], *costs);
  if (!kept.ok()) {
    LogWarning("placements will be tried again at the next start",
               {{"reason", std::string(kept.message())}});
  }
  known_[keys_[chosen_]] = *costs;
  choice_.SetCosts(chosen_, *std::move(costs));
  LogInfo("placement tried", {{"result", choice_.Explain(chosen_, absl::Now())}});
  return absl::OkStatus();
}

bool Placer::Begin(absl::Time now) {
  if (!choosing()) return true;
  if (choice_.Untried().has_value() || choice_.Best(now) != chosen_) return false;
  choice_.Begin(chosen_, now);
  return true;
}

std::optional<std::string> Placer::StepRan(const StepBatch& step, bool overlaps,
                                           std::span<const SegmentTiming> timings, absl::Time now) {
  if (!choosing()) return std::nullopt;
  const std::optional<StepShape> shape = ShapeOf(step, overlaps);
  if (!shape.has_value()) return std::nullopt;
  choice_.StepRan(*shape, SecondsOf(placements_[chosen_].plan, timings), now);
  const std::optional<size_t> next = choice_.Move(now);
  if (!next.has_value()) return std::nullopt;
  ++moves_;
  return absl::StrFormat("%s is better than %s", choice_.Explain(*next, now),
                         choice_.Explain(chosen_, now));
}

std::vector<v1::PlacementStatus> Placer::Status(absl::Time now) const {
  std::vector<v1::PlacementStatus> all;
  if (!choosing()) return all;
  for (const size_t i : choice_.Ranked(now)) {
    v1::PlacementStatus& status = all.emplace_back();
    status.set_placement(choice_.candidates()[i].description);
    status.set_in_force(choice_.in_force() == i);
    status.set_predicted_decode_tokens_per_second(choice_.DecodeRate(i));
    status.set_predicted_prompt_tokens_per_second(choice_.PromptRate(i));
    status.set_measured_slowdown(choice_.SlowdownOf(i, now));
    status.set_streams(choice_.load().streams);
  }
  return all;
}

}  // namespace tandem::gateway
