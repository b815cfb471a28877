// A worker's copy of one plan: its segments, its limits, and the steps in its lanes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"
#include "tandem/worker/v1/worker.pb.h"

namespace tandem {

// Single-thread.
class LoadedPlan {
 public:
  // `number`: which of the worker's plans it is (ModelLoad::plan).
  // Checks the request against the model and the worker, and maps the exchange region behind
  // `exchange_fd`, or makes one where activations come inline.  INVALID_ARGUMENT: a limit, a
  // segment, a lane count, or a region that is too small.  FAILED_PRECONDITION: a stage that the
  // worker does not run, or a format of ports that it does not have.  RESOURCE_EXHAUSTED: limits
  // that ask for a region or for messages beyond what a worker gives to another host.
  static absl::StatusOr<std::unique_ptr<LoadedPlan>> Create(
      const worker::v1::LoadPlanRequest& request, uint32_t number,
      const WorkerDescription& description, std::shared_ptr<const WeightSet> weights,
      UniqueFd exchange_fd);

  uint64_t epoch() const { return epoch_; }
  const std::string& model_id() const { return weights_->model_id(); }
  uint32_t num_lanes() const { return lanes_.size(); }
  // The argument of Worker::Load.
  ModelLoad MakeLoad() const;

  // Checks a call and fills the argument of Worker::Submit.  The lane's step area is read only at
  // the first call of a step; `run.step` points into this plan until the lane's next step.
  // Activations that come inline are put into the lane first, with the step.  INVALID_ARGUMENT: no
  // such segment or lane; a malformed step, another step than the call's, or one fed from another
  // step than the one read before it; inputs of a wrong size.
  absl::StatusOr<SegmentRun> Prepare(const worker::v1::ExecuteRequest& request);
  // The outputs of a segment that has run, if they are sent inline.  REQUIRES: the header of the
  // step that Prepare returned.
  void PutOutputs(uint32_t segment_index, uint32_t lane, const StepHeader& header,
                  worker::v1::ExecuteResponse& response) const;
  // Checks a call with a copy of KV, and fills the argument of Worker::CopyKv, which borrows from
  // `request`.  What comes inline is put into the exchange region first.  INVALID_ARGUMENT: the plan
  // has no area for copies; no such segment; a block that there is not, or too many; inputs of a
  // wrong size.
  absl::StatusOr<KvCopy> PrepareCopy(const worker::v1::ExecuteRequest& request) const;
  // What a copy has read, if it is sent inline.
  void PutCopied(const KvCopy& copy, worker::v1::InlineOutputs& outputs) const;
  bool inline_activations() const { return inline_activations_; }
  // Forgets the step in a lane: its next call reads the step area again, and no step can be fed
  // from it.
  void ForgetStep(uint32_t lane) {
    lanes_[lane].parsed = false;
    last_step_ = 0;
  }

 private:
  struct Lane {
    bool parsed = false;
    StepBatch step;
    std::vector<std::byte> storage;
  };

  LoadedPlan() = default;
  absl::Status ReadStep(uint32_t lane, uint64_t step_id);
  absl::Status CheckFeeds(const StepBatch& step) const;
  absl::Status CheckInlineSizes() const;
  const Segment& SegmentOf(uint32_t segment_index) const;
  // The segment is one of this worker's; its activations come as the plan says.
  absl::Status CheckCall(const worker::v1::ExecuteRequest& request) const;

  uint64_t epoch_ = 0;
  uint32_t number_ = 0;
  uint32_t num_layers_ = 0;
  std::shared_ptr<const WeightSet> weights_;  // shared with the Worker
  std::shared_ptr<const Exchange> exchange_;  // shared with the Worker
  std::vector<Segment> segments_;
  std::vector<bool> is_mine_;  // by index in the plan
  StepLimits limits_;
  DType port_dtype_ = DType::kF16;
  KvCopyLayout kv_layout_;
  std::vector<bool> attends_;  // by layer
  std::vector<Lane> lanes_;
  bool inline_activations_ = false;
  bool feeds_steps_ = false;  // the worker can feed steps, and runs the whole model
  // The step read last; the next step's rows may take its guesses.
  uint64_t last_step_ = 0;
  uint32_t last_outputs_ = 0;
};

}  // namespace tandem
