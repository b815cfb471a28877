#include "tests/bench/local_executor.h"

#include <utility>

#include "services/common/base/status_macros.h"

namespace tandem::bench {

LocalExecutor::LocalExecutor(std::unique_ptr<testing::PlanRunner> runner, Worker& worker,
                             Vocabulary vocabulary, bool queue_steps)
    : runner_(std::move(runner)),
      worker_(worker),
      vocabulary_(std::move(vocabulary)),
      queue_steps_(queue_steps) {
  plan_.workers = {worker.description()};
  plan_.segments = runner_->segments();
  plan_.max_rows = runner_->limits().max_rows;
}

std::span<std::byte> LocalExecutor::StepArea(uint32_t lane) {
  return runner_->exchange().Area(lane, runner_->exchange().layout.step);
}

void LocalExecutor::Submit(gateway::StepCall call) {
  Lane& lane = lanes_[call.lane];
  under_way_.push_back(call.lane);
  const auto step = ParseStep(StepArea(call.lane), limits(), lane.storage);
  lane.submitted = step.status();
  if (!step.ok()) return;
  lane.step = *step;
  lane.submitted = worker_.Submit({.lane = call.lane, .step = &lane.step, .first_of_step = true});
}

absl::StatusOr<std::vector<gateway::SegmentTiming>> LocalExecutor::Wait() {
  const uint32_t lane = under_way_.front();
  under_way_.pop_front();
  TANDEM_RETURN_IF_ERROR(lanes_[lane].submitted);
  TANDEM_ASSIGN_OR_RETURN(const SegmentResult result, worker_.Wait());
  device_ns_ += result.device_ns;
  return std::vector<gateway::SegmentTiming>{{.segment_index = 0, .device_ns = result.device_ns}};
}

absl::Status LocalExecutor::Recover(const Progress& /*progress*/) {
  return absl::UnavailableError("there is no recovery in one process");
}

}  // namespace tandem::bench
