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

absl::StatusOr<std::vector<gateway::SegmentTiming>> LocalExecutor::RunStep(uint32_t lane,
                                                                           uint64_t step_id) {
  TANDEM_RETURN_IF_ERROR(QueueStep(lane, step_id));
  return AwaitStep();
}

absl::Status LocalExecutor::QueueStep(uint32_t lane, uint64_t /*step_id*/) {
  Lane& queued = lanes_[lane];
  TANDEM_ASSIGN_OR_RETURN(queued.step, ParseStep(StepArea(lane), limits(), queued.storage));
  return worker_.Queue({.lane = lane, .step = &queued.step, .first_of_step = true});
}

absl::StatusOr<std::vector<gateway::SegmentTiming>> LocalExecutor::AwaitStep() {
  TANDEM_ASSIGN_OR_RETURN(const SegmentResult result, worker_.Finish());
  device_ns_ += result.device_ns;
  return std::vector<gateway::SegmentTiming>{{.segment_index = 0, .device_ns = result.device_ns}};
}

absl::Status LocalExecutor::Recover(const Progress& /*progress*/) {
  return absl::UnavailableError("there is no recovery in one process");
}

}  // namespace tandem::bench
