// Which placement serves: the one whose steps answer requests soonest, or with the least energy, by
// measurement.
//
// A placement is tried once (executor/placement_trial.h); the costs say what its steps take.  While
// it serves, its steps are compared with what they took before (slowdown.h).  If a device becomes
// slow, by heat or because others use it, another placement may be better; after it has been for some
// time, serving moves there.  A device that no longer serves cannot be measured: after a pause it
// counts as restored and may be chosen again.  If it still is slow, the next pause is twice as long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "services/gateway/placement/placement_costs.h"
#include "services/gateway/placement/slowdown.h"

namespace tandem::gateway {

struct ChoiceOptions {
  double gain = 0.1;                           // of a request's time or energy, for a move to pay
  absl::Duration sustain = absl::Seconds(20);  // so long another must have been better
  uint32_t steps = 32;                         // and for so many steps
  absl::Duration first_pause = absl::Minutes(1);
  absl::Duration last_pause = absl::Hours(1);
};

// Pure data: times are given.  Single-thread.
class PlacementChoice {
 public:
  explicit PlacementChoice(ChoiceOptions options, Favour favour = Favour::kLatency)
      : options_(options), favour_(favour) {}

  // What can be chosen from now on, for which load.  Ratios of devices stay.
  void SetCandidates(std::vector<PlacementCandidate> candidates, ReferenceLoad load);
  const std::vector<PlacementCandidate>& candidates() const { return candidates_; }
  // The first that has not been tried; nothing if all have.
  std::optional<size_t> Untried() const;
  void SetCosts(size_t candidate, PlacementCosts costs);
  // The best of those that were tried; the one in force, if no other is better by `gain`.
  // REQUIRES one that was tried.
  size_t Best(absl::Time now) const;

  // Steps run in `candidate` from now on.
  void Begin(size_t candidate, absl::Time now);
  std::optional<size_t> in_force() const { return in_force_; }
  // A step has run in the placement in force.  Of one that overlaps another only the devices' times
  // count: the rest is mostly waiting for the other's.
  void StepRan(StepShape shape, const StepSeconds& seconds, absl::Time now);
  // The placement to move to: it has been better for long enough.  Nothing most of the time.
  std::optional<size_t> Move(absl::Time now);

  // Its description and what it does, for people.
  std::string Explain(size_t candidate, absl::Time now) const;
  // Why energy does not decide, or not among all; empty: it does, or it is not asked to.
  std::string EnergyNotice() const;
  double DecodeRate(size_t candidate) const;
  double PromptRate(size_t candidate) const;
  // Of a token that is decoded; 0: unknown.
  double TokenJoules(size_t candidate) const;
  // Times that a request takes beside what it took when its placement was tried; 0: unknown.
  double SlowdownOf(size_t candidate, absl::Time now) const;
  // Candidates that were tried, the best first.
  std::vector<size_t> Ranked(absl::Time now) const;
  const ReferenceLoad& load() const { return load_; }

 private:
  // Of a device in all placements, or of the calls of one.
  struct Device {
    double ratio = 1.0;
    absl::Time seen = absl::InfinitePast();  // its ratio
    absl::Duration pause;                    // until it counts as restored; 0: it never was slow
  };
  double RatioOf(const std::string& part, absl::Time now) const;
  Slowdowns SlowdownsOf(const PlacementCandidate& candidate, absl::Time now) const;
  // Whether energy decides: it is known of two candidates at least.
  bool ByEnergy() const;
  // The lower the better.
  double Score(size_t candidate, absl::Time now) const;
  // Devices of the placement in force that are slow and no part of `next` get a pause.
  void NotePauses(size_t next, absl::Time now);

  const ChoiceOptions options_;
  const Favour favour_;
  ReferenceLoad load_;
  std::vector<PlacementCandidate> candidates_;
  std::optional<size_t> in_force_;
  std::map<std::string, Device> devices_;
  // By description of the placements that were in force: by worker of the plan, and of the calls.
  std::map<std::string, std::vector<Slowdown>> slowdowns_;
  absl::Time better_since_ = absl::InfiniteFuture();
  uint32_t better_steps_ = 0;
};

}  // namespace tandem::gateway
