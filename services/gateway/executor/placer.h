// Chooses a plan where the policy leaves several: tries each once, and moves when another has become
// better.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/plan/planner.h"
#include "services/common/step/step_batch.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/executor/prompts_apart.h"
#include "services/gateway/placement/costs_file.h"
#include "services/gateway/placement/placement_choice.h"

namespace tandem::gateway {

// A plan and the limits of its steps.
struct Placement {
  Plan plan;
  StepLimits limits;
  std::optional<Plan> prompts;  // of a replica beside it, which computes prompts
  uint32_t npu_layers = 0;      // the last of the layers are an NPU's, whole; 0: no such plan
};

// Where the policy leaves one plan, it is chosen; it is measured only if several devices share the
// layers.  Single-thread.
class Placer {
 public:
  explicit Placer(const ExecutorOptions& options);

  // Chooses among `placements`, at least one, whose workers are there: one that was not tried, or else
  // the best.  `key`: what costs depend on besides the placement.
  const Placement& Choose(const ModelConfig& config, std::vector<Placement> placements,
                          const std::string& key, absl::Time now);
  // The chosen one's steps are to be measured: call Try.  So it is where there is a choice, and under
  // kAuto where several devices share the layers (LanesFor).
  bool untried() const;
  // Measures it on the executor that has loaded it.  A placement whose steps fail is left out while
  // there is another.  UNAVAILABLE: a worker is lost.  Otherwise the error of the last placement that
  // was left.
  absl::Status Try(Executor& executor);
  // The chosen one cannot be used, for this reason: it is left out for some time.  Whether another is
  // left: call Choose again.
  bool LeaveOut(const absl::Status& why, absl::Time now);
  // The placements that are left out now, and why, for people; empty: none is.
  std::string LeftOut(absl::Time now) const;
  // Why energy does not decide though it is favoured, or not among all; empty otherwise.
  std::string EnergyNotice() const { return choice_.EnergyNotice(); }
  // Steps of requests run in the chosen placement from now on, or in a better one with the same plan.
  // False: one with another plan is better; call Choose again.
  bool Begin(absl::Time now);

  // Whether there is more than one placement.
  bool choosing() const { return placements_.size() > 1; }
  // Whether another replica computes prompts in the chosen placement.
  bool prompts_apart() const { return placements_[chosen_].prompts.has_value(); }
  // Another placement is better.
  struct Move {
    std::string why;
    bool loads = false;  // its plan is another: call Choose.  Else it is in force.
  };
  // A step of the chosen placement has run, beside another if it `overlaps`.  Whether serving moves.
  std::optional<Move> StepRan(const StepBatch& step, bool overlaps,
                              std::span<const SegmentTiming> timings, absl::Time now);
  // Another number of layers on the NPU that is worth a trial, by what the GPU alone takes and what the
  // first of the placements with such layers takes; 0: none.
  uint32_t BetterNpuLayers(uint32_t num_layers) const;
  // How many steps so many streams that decode are to be divided among, by what the chosen placement was
  // measured to take; 1: not measured.
  uint32_t LanesFor(uint32_t decoding) const;
  // As PlacementStatus, the best first; empty where there is no choice.
  std::vector<v1::PlacementStatus> Status(absl::Time now) const;
  uint64_t moves() const { return moves_; }

 private:
  absl::StatusOr<PlacementCosts> Measure(Executor& executor);
  // Costs that are known, with the power if energy is favoured.
  std::optional<PlacementCosts> Known(const std::string& key, size_t num_workers) const;
  bool IsLeftOut(const std::string& key, absl::Time now) const;
  bool SamePlan(size_t a, size_t b) const { return plans_[a] == plans_[b]; }
  // Steps of the replica that computes prompts.
  void NotePrompts(absl::Time now);

  const Favour favour_;
  const bool queues_;  // steps, two of them at once where several devices share the layers
  const bool measures_;
  const std::shared_ptr<PromptsApart> apart_;
  const CostsFile file_;
  PlacementChoice choice_;
  std::vector<Placement> placements_;
  std::vector<std::string> keys_;                // by placement
  std::vector<std::string> plans_;               // likewise: descriptions of their plans alone
  std::map<std::string, PlacementCosts> known_;  // by key
  struct Failure {
    std::string description;
    std::string why;
    absl::Time until;
  };
  std::map<std::string, Failure> failed_;  // by key
  size_t chosen_ = 0;
  uint64_t moves_ = 0;
};

}  // namespace tandem::gateway
