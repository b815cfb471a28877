#include "services/gateway/placement/placement_choice.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"

namespace tandem::gateway {
namespace {

// A device whose steps take less than this counts as not slow.
constexpr double kSlow = 1.1;

// By worker, and of the calls; before a step has run.
std::vector<Slowdown> Unmeasured(const PlacementCandidate& candidate) {
  const size_t num_workers = candidate.workers.size();
  std::vector<Slowdown> slowdowns(num_workers + 1);
  if (!candidate.costs.has_value()) return slowdowns;
  const PlacementCosts& costs = *candidate.costs;
  const auto expect = [&](StepShape shape, const StepSeconds& seconds) {
    for (size_t w = 0; w < num_workers; ++w) slowdowns[w].Expect(shape, seconds.device[w]);
    slowdowns.back().Expect(shape, seconds.other);
  };
  expect({.rows = costs.prompt_rows, .depth = costs.depth / 2}, costs.prompt);
  expect({.decodes = true, .rows = costs.streams, .depth = costs.depth}, costs.full);
  expect({.decodes = true, .rows = 1, .depth = costs.depth}, costs.lone);
  return slowdowns;
}

// Names of what can become slow: for p below the number of workers one of them, then the calls.
const std::string& PartOf(const PlacementCandidate& candidate, size_t p) {
  return p < candidate.workers.size() ? candidate.workers[p] : candidate.description;
}

Slowdowns None(const PlacementCandidate& candidate) {
  return {.device = std::vector<double>(candidate.workers.size(), 1.0)};
}

}  // namespace

void PlacementChoice::SetCandidates(std::vector<PlacementCandidate> candidates,
                                    ReferenceLoad load) {
  load_ = load;
  const std::string former = in_force_.has_value() ? candidates_[*in_force_].description : "";
  in_force_.reset();
  candidates_ = std::move(candidates);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].description == former) in_force_ = i;
  }
}

std::optional<size_t> PlacementChoice::Untried() const {
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (!candidates_[i].costs.has_value()) return i;
  }
  return std::nullopt;
}

void PlacementChoice::SetCosts(size_t candidate, PlacementCosts costs) {
  TANDEM_CHECK(candidate < candidates_.size());
  candidates_[candidate].costs = std::move(costs);
}

double PlacementChoice::RatioOf(const std::string& part, absl::Time now) const {
  const auto found = devices_.find(part);
  if (found == devices_.end()) return 1.0;
  const Device& device = found->second;
  const bool restored = device.pause > absl::ZeroDuration() && now - device.seen >= device.pause;
  return restored ? 1.0 : device.ratio;
}

Slowdowns PlacementChoice::SlowdownsOf(const PlacementCandidate& candidate, absl::Time now) const {
  Slowdowns slowdowns;
  for (const std::string& worker : candidate.workers) {
    slowdowns.device.push_back(RatioOf(worker, now));
  }
  slowdowns.other = RatioOf(candidate.description, now);
  return slowdowns;
}

double PlacementChoice::Score(size_t candidate, absl::Time now) const {
  const PlacementCandidate& of = candidates_[candidate];
  const Slowdowns slowdowns = SlowdownsOf(of, now);
  if (!ByEnergy()) return RequestSeconds(*of.costs, load_, slowdowns);
  return RequestJoules(*of.costs, load_, slowdowns)
      .value_or(std::numeric_limits<double>::infinity());
}

bool PlacementChoice::ByEnergy() const {
  if (favour_ != Favour::kEnergy) return false;
  const auto known = std::ranges::count_if(candidates_, [this](const PlacementCandidate& of) {
    return of.costs.has_value() && RequestJoules(*of.costs, load_, None(of)).has_value();
  });
  return known >= 2;
}

std::string PlacementChoice::EnergyNotice() const {
  if (favour_ != Favour::kEnergy || candidates_.size() < 2) return "";
  std::set<std::string> without;
  for (const PlacementCandidate& of : candidates_) {
    if (!of.costs.has_value() || !PowerMeasured(*of.costs)) continue;
    for (const size_t worker : WorkersWithoutPower(*of.costs)) without.insert(of.workers[worker]);
  }
  if (without.empty()) return "";
  return absl::StrFormat("the power of %s cannot be read, so %s", absl::StrJoin(without, " and "),
                         ByEnergy() ? "placements that use it are not weighed by energy"
                                    : "the fastest placement is used, whatever its energy");
}

std::vector<size_t> PlacementChoice::Ranked(absl::Time now) const {
  std::vector<size_t> ranked;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].costs.has_value()) ranked.push_back(i);
  }
  std::ranges::stable_sort(ranked,
                           [&](size_t a, size_t b) { return Score(a, now) < Score(b, now); });
  return ranked;
}

size_t PlacementChoice::Best(absl::Time now) const {
  std::optional<size_t> found;
  double least = 0.0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (!candidates_[i].costs.has_value()) continue;
    const double score = Score(i, now);
    if (found.has_value() && score >= least) continue;
    found = i;
    least = score;
  }
  TANDEM_CHECK(found.has_value());
  const size_t best = *found;
  if (!in_force_.has_value() || !candidates_[*in_force_].costs.has_value()) return best;
  return least < (1.0 - options_.gain) * Score(*in_force_, now) ? best : *in_force_;
}

void PlacementChoice::NotePauses(size_t next, absl::Time now) {
  const PlacementCandidate& left = candidates_[*in_force_];
  for (size_t p = 0; p <= left.workers.size(); ++p) {
    const std::string& part = PartOf(left, p);
    if (std::ranges::count(candidates_[next].workers, part) > 0) continue;
    Device& device = devices_[part];
    if (device.ratio < kSlow) continue;
    device.pause = device.pause == absl::ZeroDuration()
                       ? options_.first_pause
                       : std::min(2 * device.pause, options_.last_pause);
    device.seen = now;
  }
}

void PlacementChoice::Begin(size_t candidate, absl::Time now) {
  TANDEM_CHECK(candidate < candidates_.size());
  if (in_force_.has_value() && *in_force_ != candidate) NotePauses(candidate, now);
  in_force_ = candidate;
  better_since_ = absl::InfiniteFuture();
  const PlacementCandidate& begun = candidates_[candidate];
  std::vector<Slowdown>& slowdowns = slowdowns_[begun.description];
  if (slowdowns.empty()) slowdowns = Unmeasured(begun);
  for (size_t p = 0; p < slowdowns.size(); ++p) {
    const double ratio = RatioOf(PartOf(begun, p), now);
    devices_[PartOf(begun, p)].ratio = ratio;
    slowdowns[p].Assume(ratio);
  }
}

void PlacementChoice::StepRan(StepShape shape, const StepSeconds& seconds, absl::Time now) {
  if (!in_force_.has_value()) return;
  const PlacementCandidate& candidate = candidates_[*in_force_];
  std::vector<Slowdown>& slowdowns = slowdowns_[candidate.description];
  TANDEM_CHECK(seconds.device.size() + 1 == slowdowns.size());
  const size_t num_parts = slowdowns.size() - (shape.overlaps ? 1 : 0);
  for (size_t p = 0; p < num_parts; ++p) {
    const double time = p < seconds.device.size() ? seconds.device[p] : seconds.other;
    if (time <= 0.0) continue;  // it had nothing to do
    slowdowns[p].Took(shape, time);
    Device& device = devices_[PartOf(candidate, p)];
    device.ratio = slowdowns[p].ratio();
    device.seen = now;
  }
  ++better_steps_;
}

std::optional<size_t> PlacementChoice::Move(absl::Time now) {
  if (!in_force_.has_value() || !candidates_[*in_force_].costs.has_value()) return std::nullopt;
  const size_t best = Best(now);
  if (best == *in_force_) {
    better_since_ = absl::InfiniteFuture();
    return std::nullopt;
  }
  if (better_since_ == absl::InfiniteFuture()) {
    better_since_ = now;
    better_steps_ = 0;
  }
  const bool lasts = now - better_since_ >= options_.sustain && better_steps_ >= options_.steps;
  return lasts ? std::optional<size_t>(best) : std::nullopt;
}

double PlacementChoice::DecodeRate(size_t candidate) const {
  const PlacementCandidate& of = candidates_[candidate];
  return of.costs.has_value() ? gateway::DecodeRate(*of.costs, load_, None(of)) : 0.0;
}

double PlacementChoice::PromptRate(size_t candidate) const {
  const PlacementCandidate& of = candidates_[candidate];
  return of.costs.has_value() ? gateway::PromptRate(*of.costs, load_, None(of)) : 0.0;
}

double PlacementChoice::SlowdownOf(size_t candidate, absl::Time now) const {
  const PlacementCandidate& of = candidates_[candidate];
  if (!of.costs.has_value() || slowdowns_.count(of.description) == 0) return 0.0;
  return RequestSeconds(*of.costs, load_, SlowdownsOf(of, now)) /
         RequestSeconds(*of.costs, load_, None(of));
}

double PlacementChoice::TokenJoules(size_t candidate) const {
  const PlacementCandidate& of = candidates_[candidate];
  if (!of.costs.has_value()) return 0.0;
  return gateway::TokenJoules(*of.costs, load_, None(of)).value_or(0.0);
}

std::string PlacementChoice::Explain(size_t candidate, absl::Time now) const {
  const double slowdown = SlowdownOf(candidate, now);
  const double joules = TokenJoules(candidate);
  return absl::StrFormat(
      "%s: %.1f tokens a second, prompts %.0f%s%s", candidates_[candidate].description,
      DecodeRate(candidate), PromptRate(candidate),
      joules > 0.0 ? absl::StrFormat(", %.3g J a token", joules) : std::string(),
      slowdown > kSlow ? absl::StrFormat(", now %.1f times slower", slowdown) : std::string());
}

}  // namespace tandem::gateway
