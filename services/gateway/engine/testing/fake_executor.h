// An executor with the toy model behind it instead of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "services/gateway/engine/testing/toy_model.h"
#include "services/gateway/executor/executor.h"

namespace tandem::gateway::testing {

StepLimits ToyLimits();

struct FakeExecutorOptions {
  StepLimits limits = ToyLimits();
  // What a step answers; UNAVAILABLE loses the KV cache.  Called on the engine's thread.
  std::function<absl::Status(const StepBatch& step)> on_step;
  // What a check between steps answers; UNAVAILABLE loses the KV cache.
  std::function<absl::Status()> on_check;
  // What a recovery answers; may change the limits.
  std::function<absl::Status(StepLimits& limits)> on_recover;
};

// Checks every step with ParseStep, and that a loss is followed by Recover before the next step.
class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(FakeExecutorOptions options);

  const loader::v1::Model& model() const override { return model_; }
  const ModelConfig& config() const override { return config_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  const Plan& plan() const override { return plan_; }
  const StepLimits& limits() const override { return options_.limits; }
  std::string placement() const override { return "everything on toy0"; }
  std::span<std::byte> StepArea(uint32_t) override { return area_; }
  absl::StatusOr<std::vector<SegmentTiming>> RunStep(uint32_t lane, uint64_t step_id) override;
  const OutputResult& Output(uint32_t, uint32_t o) const override { return results_[o]; }
  std::span<const float> Logits(uint32_t, uint32_t o) const override { return logits_[o]; }
  absl::Status CheckWorkers() override;
  absl::Status Recover(const Progress& progress) override;
  void FillStatus(v1::GetStatusResponse& status) const override;

 private:
  void Compute(const StepBatch& step);
  void Wipe();

  FakeExecutorOptions options_;
  loader::v1::Model model_;
  Vocabulary vocabulary_;
  ModelConfig config_;
  Plan plan_;
  std::vector<std::byte> area_;
  std::vector<std::byte> storage_;
  std::vector<uint64_t> states_[kNumKvGroups];  // by block and slot
  std::vector<OutputResult> results_;
  std::vector<std::vector<float>> logits_;
  bool lost_ = false;
  uint64_t last_step_id_ = 0;
};

}  // namespace tandem::gateway::testing
