// The gateway's Executor over a worker in the same process, without calls.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/common/testing/plan_runner.h"
#include "services/gateway/executor/executor.h"
#include "services/gateway/executor/step_pacer.h"

namespace tandem::bench {

// When the next step is chosen and submitted.
enum class Queueing {
  kLate,      // shortly before the running one ends, as in the gateway
  kAtOnce,    // when the running one begins
  kOneByOne,  // when the running one has ended
};

// Thread rule as Executor's.  There is no recovery: an error stays one.
class LocalExecutor final : public gateway::Executor {
 public:
  // `runner`: a plan of one segment of `worker`, with two lanes.  `worker`: Borrowed; must outlive
  // this.
  LocalExecutor(std::unique_ptr<testing::PlanRunner> runner, Worker& worker, Vocabulary vocabulary,
                Queueing queueing);

  // Has the row at a position choose `token_at` of the next one, whatever the model says.  So the
  // answer does not depend on how many rows were computed together.
  void Force(std::function<uint32_t(uint32_t)> token_at) { token_at_ = std::move(token_at); }

  const loader::v1::Model& model() const override { return model_; }
  const ModelConfig& config() const override { return runner_->config(); }
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  const Plan& plan() const override { return plan_; }
  const StepLimits& limits() const override { return runner_->limits(); }
  std::string placement() const override { return plan_.workers[0].name; }
  uint64_t epoch() const override { return 1; }
  std::span<std::byte> StepArea(uint32_t lane) override;
  std::span<std::byte> MaskArea(uint32_t lane, uint32_t mask) override;
  void WriteSoftTokens(uint32_t lane, uint32_t first_row,
                       std::span<const float> soft_tokens) override {
    runner_->WriteSoftTokens(first_row, soft_tokens, lane);
  }
  uint32_t depth() const override { return queueing_ == Queueing::kOneByOne ? 1 : 2; }
  void WaitUntilDue() override;
  void Submit(gateway::StepCall call) override;
  absl::StatusOr<std::vector<gateway::SegmentTiming>> Wait() override;
  const OutputResult& Output(uint32_t lane, uint32_t o) const override;
  std::span<const float> Logits(uint32_t lane, uint32_t o) const override {
    return runner_->Logits(o, lane);
  }
  std::span<const float> Pooled(uint32_t lane, uint32_t p) const override {
    return runner_->Pooled(p, lane);
  }
  uint32_t Guess(uint32_t lane, uint32_t o) const override;
  absl::Status CheckWorkers() override { return absl::OkStatus(); }
  absl::Status Recover(const Progress& progress) override;
  void FillStatus(v1::GetStatusResponse& /*status*/) const override {}

  // Any thread.
  double device_seconds() const { return 1e-9 * static_cast<double>(device_ns_.load()); }

 private:
  struct Lane {
    std::vector<std::byte> storage;
    StepBatch step;
    absl::Status submitted;
    gateway::StepTimer::Clock::time_point begin;
  };

  uint32_t ForcedToken(uint32_t lane, uint32_t o) const;

  const std::unique_ptr<testing::PlanRunner> runner_;
  Worker& worker_;  // Borrowed.
  const Vocabulary vocabulary_;
  const Queueing queueing_;
  gateway::StepTimer timer_;
  gateway::StepTimer::Clock::time_point last_end_;
  loader::v1::Model model_;
  Plan plan_;
  Lane lanes_[2];
  std::deque<uint32_t> under_way_;              // lanes, oldest step first
  std::function<uint32_t(uint32_t)> token_at_;  // null: the model says it
  mutable OutputResult forced_;                 // of the last Output
  std::atomic<uint64_t> device_ns_{0};
};

}  // namespace tandem::bench
