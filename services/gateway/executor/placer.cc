#include "services/gateway/executor/placer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/executor/placement_trial.h"
#include "services/gateway/placement/npu_layers.h"

namespace tandem::gateway {
namespace {

// What failed may work again: memory, or a device's contexts, that others had.
constexpr absl::Duration kLeftOut = absl::Minutes(10);

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

// All workers whose times count: first those of the plan.
std::vector<WorkerDescription> WorkersOf(const Placement& placement) {
  std::vector<WorkerDescription> workers = placement.plan.workers;
  if (!placement.prompts.has_value()) return workers;
  for (const WorkerDescription& worker : placement.prompts->workers) {
    if (std::ranges::find(workers, worker.name, &WorkerDescription::name) == workers.end()) {
      workers.push_back(worker);
    }
  }
  return workers;
}

// Of a placement's workers, from times of steps that the other replica has run.
StepSeconds SecondsApart(const Placement& placement, const StepSeconds& seconds) {
  const std::vector<WorkerDescription> workers = WorkersOf(placement);
  StepSeconds all{.device = std::vector<double>(workers.size()), .other = seconds.other};
  if (!seconds.watts.empty()) all.watts.resize(workers.size());
  for (size_t w = 0; w < seconds.device.size(); ++w) {
    const std::string& name = placement.prompts->workers[w].name;
    const auto at = std::ranges::find(workers, name, &WorkerDescription::name) - workers.begin();
    all.device[at] += seconds.device[w];
    if (!seconds.watts.empty()) all.watts[at] = seconds.watts[w];
  }
  return all;
}

std::string Describe(const Placement& placement, const ModelConfig& config) {
  const std::string plan = DescribePlacement(placement.plan, config);
  if (!placement.prompts.has_value()) return plan;
  return absl::StrFormat("prompts: %s; answers: %s", DescribePlacement(*placement.prompts, config),
                         plan);
}

// What a plan's costs depend on.
std::string KeyOf(const Placement& placement, const std::string& description,
                  const std::string& key) {
  const StepLimits& limits = placement.limits;
  std::string of = absl::StrFormat("%s; %s; %d rows, %d sequences, %d positions, KV %s", key,
                                   description, limits.max_rows, limits.max_sequences,
                                   limits.context_len, std::string(Traits(limits.kv_dtype).name));
  for (const WorkerDescription& worker : WorkersOf(placement)) {
    if (!worker.driver.empty()) absl::StrAppend(&of, "; ", worker.name, " by ", worker.driver);
  }
  return of;
}

}  // namespace

Placer::Placer(const ExecutorOptions& options)
    : favour_(options.favour),
      queues_(options.queue_steps),
      measures_(options.policy.npu == NpuPolicy::kAuto),
      apart_(options.prompts_apart),
      file_(options.costs_file),
      choice_(options.choice, options.favour) {}

std::optional<PlacementCosts> Placer::Known(const std::string& key, size_t num_workers) const {
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  std::optional<PlacementCosts> kept = file_.Find(key, num_workers);
  if (favour_ == Favour::kEnergy && kept.has_value() && !PowerMeasured(*kept)) kept.reset();
  return kept;
}

const Placement& Placer::Choose(const ModelConfig& config, std::vector<Placement> placements,
                                const std::string& key, absl::Time now) {
  TANDEM_CHECK(!placements.empty());
  const auto key_of = [&](const Placement& placement) {
    return KeyOf(placement, Describe(placement, config), key);
  };
  const auto failed = [&](const Placement& placement) { return IsLeftOut(key_of(placement), now); };
  if (!std::ranges::all_of(placements, failed)) std::erase_if(placements, failed);
  KeepLongestContext(placements);
  std::vector<PlacementCandidate> candidates;
  keys_.clear();
  plans_.clear();
  for (const Placement& placement : placements) {
    PlacementCandidate candidate{.description = Describe(placement, config)};
    for (const WorkerDescription& worker : WorkersOf(placement)) {
      candidate.workers.push_back(worker.name);
    }
    plans_.push_back(DescribePlacement(placement.plan, config));
    keys_.push_back(key_of(placement));
    candidate.costs = Known(keys_.back(), candidate.workers.size());
    if (candidate.costs.has_value()) {
      candidate.costs->prompts_apart = placement.prompts.has_value();
      candidate.costs->lanes = queues_ && candidate.workers.size() > 1;
    }
    candidates.push_back(std::move(candidate));
  }
  placements_ = std::move(placements);
  choice_.SetCandidates(std::move(candidates),
                        LoadWithin(placements_.front().limits, favour_ == Favour::kThroughput));
  chosen_ = choosing() ? choice_.Untried().value_or(0) : 0;
  if (choosing() && !choice_.Untried().has_value()) chosen_ = choice_.Best(now);
  return placements_[chosen_];
}

bool Placer::untried() const {
  const bool shared = measures_ && placements_[chosen_].plan.workers.size() > 1;
  return (choosing() || shared) && !choice_.candidates()[chosen_].costs.has_value();
}

uint32_t Placer::BetterNpuLayers(uint32_t num_layers) const {
  const auto costs_of = [this](auto is_it) -> std::optional<PlacementCosts> {
    for (size_t i = 0; i < placements_.size(); ++i) {
      if (is_it(placements_[i])) return choice_.candidates()[i].costs;
    }
    return std::nullopt;
  };
  LayerCosts costs{.num_layers = num_layers};
  const auto gpu = costs_of([](const Placement& placement) {
    return placement.plan.workers.size() == 1 && !placement.prompts.has_value();
  });
  const auto both = costs_of([&costs](const Placement& placement) {
    costs.npu_layers = placement.npu_layers;
    return placement.npu_layers > 0;
  });
  if (!gpu.has_value() || !both.has_value()) return 0;
  costs.gpu = *gpu;
  costs.both = *both;
  return gateway::BetterNpuLayers(costs, choice_.load());
}

uint32_t Placer::LanesFor(uint32_t decoding) const {
  const std::optional<PlacementCosts>& costs = choice_.candidates()[chosen_].costs;
  return costs.has_value() ? gateway::LanesFor(*costs, decoding) : 1;
}

absl::StatusOr<PlacementCosts> Placer::Measure(Executor& executor) {
  const Placement& placement = placements_[chosen_];
  const bool with_power = favour_ == Favour::kEnergy;
  if (!placement.prompts.has_value()) return TryPlacement(executor, choice_.load(), with_power);
  // It decodes as the plan does alone.
  std::optional<PlacementCosts> costs;
  for (size_t i = 0; i < placements_.size() && !costs.has_value(); ++i) {
    if (i != chosen_ && SamePlan(i, chosen_)) costs = choice_.candidates()[i].costs;
  }
  if (!costs.has_value()) {
    TANDEM_ASSIGN_OR_RETURN(costs, TryPlacement(executor, choice_.load(), with_power));
  }
  auto apart = apart_->measure(executor, choice_.load());
  if (!apart.ok() || apart->prompt.device.size() != placement.prompts->workers.size()) {
    // Whatever is missing, answers do not depend on it.
    return absl::FailedPreconditionError(
        apart.ok() ? "other workers compute the prompts than were there at first"
                   : std::string(apart.status().message()));
  }
  const size_t num_workers = choice_.candidates()[chosen_].workers.size();
  costs->prompts_apart = true;
  costs->prompt_rows = apart->prompt_rows;
  costs->prompt = SecondsApart(placement, apart->prompt);
  for (StepSeconds* step : {&costs->lone, &costs->full}) {
    step->device.resize(num_workers);
    if (with_power) step->watts.resize(num_workers);
  }
  return *costs;
}

absl::Status Placer::Try(Executor& executor) {
  auto costs = Measure(executor);
  if (!costs.ok()) {
    if (absl::IsUnavailable(costs.status())) return costs.status();
    return LeaveOut(costs.status(), absl::Now()) ? absl::OkStatus() : costs.status();
  }
  const absl::Status kept = file_.Put(keys_[chosen_], *costs);
  if (!kept.ok()) {
    LogWarning("placements will be tried again at the next start",
               {{"reason", std::string(kept.message())}});
  }
  known_[keys_[chosen_]] = *costs;
  costs->lanes = queues_ && choice_.candidates()[chosen_].workers.size() > 1;
  choice_.SetCosts(chosen_, *std::move(costs));
  LogInfo("placement tried", {{"result", choice_.Explain(chosen_, absl::Now())}});
  return absl::OkStatus();
}

bool Placer::IsLeftOut(const std::string& key, absl::Time now) const {
  const auto failure = failed_.find(key);
  return failure != failed_.end() && now < failure->second.until;
}

bool Placer::LeaveOut(const absl::Status& why, absl::Time now) {
  const std::string& description = choice_.candidates()[chosen_].description;
  failed_[keys_[chosen_]] = {description, std::string(why.message()), now + kLeftOut};
  const bool others =
      std::ranges::any_of(keys_, [&](const std::string& key) { return !IsLeftOut(key, now); });
  if (others) {
    LogError("a placement fails, and is left out",
             {{"placement", description}, {"reason", std::string(why.message())}});
  }
  return others;
}

std::string Placer::LeftOut(absl::Time now) const {
  std::string all;
  for (const auto& [key, failure] : failed_) {
    // Where all have failed, one of them is chosen all the same.
    if (!IsLeftOut(key, now) || key == keys_[chosen_]) continue;
    absl::StrAppendFormat(&all, "%s%s is left out: %s", all.empty() ? "" : "; ",
                          failure.description, failure.why);
  }
  return all;
}

bool Placer::Begin(absl::Time now) {
  if (!choosing()) return true;
  if (choice_.Untried().has_value()) return false;
  const size_t best = choice_.Best(now);
  if (!SamePlan(best, chosen_)) return false;
  chosen_ = best;
  choice_.Begin(chosen_, now);
  return true;
}

void Placer::NotePrompts(absl::Time now) {
  const Placement& placement = placements_[chosen_];
  for (StepLog::Entry& entry : apart_->steps->Take()) {
    if (!placement.prompts.has_value() ||
        entry.seconds.device.size() != placement.prompts->workers.size()) {
      continue;  // it ran before serving moved here
    }
    choice_.StepRan(entry.shape, SecondsApart(placement, entry.seconds), now);
  }
}

std::optional<Placer::Move> Placer::StepRan(const StepBatch& step, bool overlaps,
                                            std::span<const SegmentTiming> timings,
                                            absl::Time now) {
  if (!choosing()) return std::nullopt;
  if (apart_ != nullptr) NotePrompts(now);
  // Beside prompts on other devices, which take some of the memory's bandwidth.
  const std::optional<StepShape> shape = ShapeOf(step, overlaps || prompts_apart());
  // The placement was measured without the few prompts that are computed here.
  if (!shape.has_value() || (prompts_apart() && !shape->decodes)) return std::nullopt;
  StepSeconds seconds = SecondsOf(placements_[chosen_].plan, timings);
  seconds.device.resize(choice_.candidates()[chosen_].workers.size());
  choice_.StepRan(*shape, seconds, now);
  const std::optional<size_t> next = choice_.Move(now);
  if (!next.has_value()) return std::nullopt;
  ++moves_;
  Move move{.why = absl::StrFormat("%s is better than %s", choice_.Explain(*next, now),
                                   choice_.Explain(chosen_, now)),
            .loads = !SamePlan(*next, chosen_)};
  if (!move.loads) {
    chosen_ = *next;
    choice_.Begin(chosen_, now);
  }
  return move;
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
    status.set_predicted_joules_per_token(choice_.TokenJoules(i));
  }
  return all;
}

}  // namespace tandem::gateway
