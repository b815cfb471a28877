// An executor with the toy model behind it instead of workers.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "services/gateway/engine/testing/toy_model.h"
#include "services/gateway/executor/executor.h"

namespace tandem::gateway::testing {

StepLimits ToyLimits();

struct FakeExecutorOptions {
  StepLimits limits = ToyLimits();
  std::string model_id = "toy-1";
  std::string worker = "toy0";
  uint32_t head_dim = 0;  // 0: the toy model's
  bool queue_steps = true;
  bool takes_late_masks = false;
  bool takes_pictures = false;  // of limits.picture_rows each
  // One guess in this many is wrong; 0: all are right.
  uint32_t wrong_guess_in = 0;
  double watts = 0.0;  // that its device reports
  // The best candidate of every output, in place of the toy model's choice.
  uint32_t favourite = kNoToken;
  // What a step answers; UNAVAILABLE loses the KV cache.  Called on the engine's thread.
  std::function<absl::Status(const StepBatch& step)> on_step;
  // A step was waited for that had announced another, and there was no other.  Called on the
  // engine's thread.
  std::function<void()> on_flush;
  // The next step is about to be chosen while one is under way; returns when it is due.  Called on
  // the engine's thread.
  std::function<void()> until_due;
  // What a copy of KV answers; UNAVAILABLE loses the KV cache.  Copies need limits.kv_area_bytes.
  // Called on the engine's thread.
  std::function<absl::Status(const KvCopy& copy)> on_copy;
  // What a check between steps answers; UNAVAILABLE loses the KV cache.
  std::function<absl::Status()> on_check;
  // What a recovery answers; may change the limits.
  std::function<absl::Status(StepLimits& limits)> on_recover;
};

// Checks every step with ParseStep, and that a loss is followed by Recover before the next step.
// Steps are computed when they are waited for.
class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(FakeExecutorOptions options);

  const loader::v1::Model& model() const override { return model_; }
  const ModelConfig& config() const override { return config_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  const Plan& plan() const override { return plan_; }
  const StepLimits& limits() const override { return options_.limits; }
  std::string placement() const override { return "everything on " + options_.worker; }
  uint64_t epoch() const override { return epoch_; }
  std::span<std::byte> StepArea(uint32_t lane) override { return lanes_[lane].area; }
  std::span<std::byte> MaskArea(uint32_t lane, uint32_t mask) override {
    return std::as_writable_bytes(std::span(lanes_[lane].masks.at(mask)));
  }
  void WriteSoftTokens(uint32_t lane, uint32_t first_row,
                       std::span<const float> soft_tokens) override;
  uint32_t depth() const override { return options_.queue_steps ? 2 : 1; }
  void WaitUntilDue() override {
    if (options_.until_due) options_.until_due();
  }
  bool takes_late_masks() const override { return options_.takes_late_masks; }
  void Submit(StepCall call) override;
  void MasksReady() override;
  absl::StatusOr<std::vector<SegmentTiming>> Wait() override;
  const OutputResult& Output(uint32_t lane, uint32_t o) const override {
    return lanes_[lane].results[o];
  }
  std::span<const float> Logits(uint32_t lane, uint32_t o) const override {
    return lanes_[lane].logits[o];
  }
  std::span<const float> Pooled(uint32_t lane, uint32_t p) const override {
    return lanes_[lane].pooled[p];
  }
  uint32_t Guess(uint32_t lane, uint32_t o) const override { return lanes_[lane].guesses[o]; }
  std::span<std::byte> KvArea() override { return kv_area_; }
  // A position's state lies at the start of its K of a group's first layer, and what stands for it in
  // a picture at the start of its V.
  absl::Status CopyKv(const KvCopy& copy) override;
  absl::Status CheckWorkers() override;
  absl::Status Recover(const Progress& progress) override;
  void FillStatus(v1::GetStatusResponse& status) const override;

 private:
  struct Lane {
    std::vector<std::byte> area;
    std::vector<std::vector<uint32_t>> masks;
    std::vector<float> soft_tokens;  // [max_rows, hidden_dim]
    std::vector<std::byte> storage;
    std::vector<OutputResult> results;
    std::vector<std::vector<float>> logits;
    std::vector<uint32_t> guesses;
    std::vector<std::vector<float>> pooled;
  };
  struct Submitted {
    uint32_t lane = 0;
    StepBatch step;
    bool another_follows = false;
    bool masks_follow = false;
  };
  void Compute(const StepBatch& step, Lane& lane);
  // By row: its token, or what stands for it in a picture.
  std::vector<uint32_t> TokensOf(const StepBatch& step, const Lane& lane);
  // Where the KV cache keeps a position of a sequence.
  size_t SlotOf(const StepBatch& step, const SequenceEntry& sequence, int group,
                uint32_t position) const;
  void Wipe();

  FakeExecutorOptions options_;
  loader::v1::Model model_;
  Vocabulary vocabulary_;
  ModelConfig config_;
  Plan plan_;
  Lane lanes_[2];
  std::deque<Submitted> under_way_;
  std::vector<uint32_t> last_guesses_;          // of the step that was run last
  std::vector<uint64_t> states_[kNumKvGroups];  // by block and slot
  std::vector<uint64_t> picture_rows_;          // the same, of the window group
  std::vector<std::byte> kv_area_;
  std::mt19937 random_;
  bool lost_ = false;
  uint64_t epoch_ = 1;
  uint64_t last_step_id_ = 0;  // of the step submitted last
  uint64_t last_run_ = 0;
};

}  // namespace tandem::gateway::testing
