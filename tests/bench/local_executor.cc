#include "tests/bench/local_executor.h"

#include <algorithm>
#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem::bench {

LocalExecutor::LocalExecutor(std::unique_ptr<testing::PlanRunner> runner, Worker& worker,
                             Vocabulary vocabulary, Queueing queueing)
    : runner_(std::move(runner)),
      worker_(worker),
      vocabulary_(std::move(vocabulary)),
      queueing_(queueing) {
  plan_.workers = {worker.description()};
  plan_.segments = runner_->segments();
  plan_.max_rows = runner_->limits().max_rows;
}

std::span<std::byte> LocalExecutor::StepArea(uint32_t lane) {
  return runner_->exchange().Area(lane, runner_->exchange().layout.step);
}

std::span<std::byte> LocalExecutor::MaskArea(uint32_t lane, uint32_t mask) {
  const ExchangeArea& area = runner_->exchange().layout.masks;
  return runner_->exchange().Area(lane, area).subspan(mask * area.row_bytes, area.row_bytes);
}

void LocalExecutor::WaitUntilDue() {
  if (queueing_ != Queueing::kLate || under_way_.size() != 1) return;
  const Lane& lane = lanes_[under_way_.front()];
  if (!lane.submitted.ok()) return;
  timer_.WaitUntilDue(gateway::StepSize::Of(lane.step.header), std::max(lane.begin, last_end_));
}

void LocalExecutor::Submit(gateway::StepCall call) {
  Lane& lane = lanes_[call.lane];
  lane.begin = gateway::StepTimer::Clock::now();
  under_way_.push_back(call.lane);
  const auto step = ParseStep(StepArea(call.lane), limits(), lane.storage);
  lane.submitted = step.status();
  if (!step.ok()) return;
  lane.step = *step;
  lane.submitted = worker_.Submit({.lane = call.lane, .step = &lane.step, .first_of_step = true});
  timer_.Sent();
}

absl::StatusOr<std::vector<gateway::SegmentTiming>> LocalExecutor::Wait() {
  const uint32_t lane = under_way_.front();
  under_way_.pop_front();
  TANDEM_RETURN_IF_ERROR(lanes_[lane].submitted);
  TANDEM_ASSIGN_OR_RETURN(const SegmentResult result, worker_.Wait(0));
  last_end_ = gateway::StepTimer::Clock::now();
  device_ns_ += result.device_ns;
  timer_.pacer().StepRan(gateway::StepSize::Of(lanes_[lane].step.header),
                         std::chrono::nanoseconds(result.device_ns));
  return std::vector<gateway::SegmentTiming>{{.segment_index = 0, .device_ns = result.device_ns}};
}

uint32_t LocalExecutor::ForcedToken(uint32_t lane, uint32_t o) const {
  const StepBatch& step = lanes_[lane].step;
  return token_at_(step.rows[step.outputs[o].row].position + 1);
}

const OutputResult& LocalExecutor::Output(uint32_t lane, uint32_t o) const {
  if (token_at_ == nullptr) return runner_->Output(o, lane);
  forced_ = runner_->Output(o, lane);
  forced_.candidates[0].token = ForcedToken(lane, o);
  return forced_;
}

uint32_t LocalExecutor::Guess(uint32_t lane, uint32_t o) const {
  return token_at_ == nullptr ? runner_->Guess(o, lane) : ForcedToken(lane, o);
}

absl::Status LocalExecutor::Recover(const Progress& /*progress*/) {
  return absl::UnavailableError("there is no recovery in one process");
}

}  // namespace tandem::bench
