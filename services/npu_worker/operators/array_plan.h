// A model's Attend stages on an array: everything a step needs exists before the first.
//
// In a step, for each layer: the rows' queries, keys and values are converted to bfloat16, keys and
// values go to their places in the cache, the group's control code runs over the layer's cache, and the
// output is converted back.  Control code is made once a step for each KV group: its layers differ in
// their buffers alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/backend/backend.h"
#include "services/npu_worker/operators/attention_commands.h"
#include "services/npu_worker/operators/kv_slabs.h"
#include "services/npu_worker/operators/step_runs.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_device.h"

namespace tandem::npu {

class ArrayPlan final : public BackendPlan {
 public:
  // `device`: opened with the operator's xclbin; shared with the backend and other plans.
  // `op`: borrowed; must outlive this.  Errors as Backend::Load.
  static absl::StatusOr<std::unique_ptr<ArrayPlan>> Create(
      std::shared_ptr<NpuDevice> device, const NpuOperator& op, ModelLoad load,
      const std::function<void(double, std::string_view)>& progress);

  LoadReport report() const override;
  absl::StatusOr<SegmentResult> Run(const SegmentRun& run, absl::Duration timeout) override;

 private:
  struct GroupStep {
    StepRuns runs;
    AttentionCode code;
  };
  using LaneStep = std::array<GroupStep, kNumKvGroups>;

  ArrayPlan(std::shared_ptr<NpuDevice> device, const NpuOperator& op, ModelLoad load)
      : device_(std::move(device)), op_(op), load_(std::move(load)) {}
  absl::Status Prepare(const std::function<void(double, std::string_view)>& progress);
  absl::Status ReadSegments();
  absl::Status MakeSlabs();
  KvGroup GroupOf(uint32_t layer_idx) const;
  SlabShape ShapeOf(KvGroup group) const;
  // The lane's runs and control code for a group, made if they are not there yet.
  absl::StatusOr<GroupStep*> StepOf(const SegmentRun& run, KvGroup group, const SlabShape& shape);
  std::span<uint16_t> PortRows(uint32_t lane, Port port, uint32_t num_rows) const;

  // Destroyed in the reverse order: what uses the device goes before it.
  std::shared_ptr<NpuDevice> device_;
  const NpuOperator& op_;  // Borrowed.
  ModelLoad load_;
  std::unique_ptr<AttentionCommands> commands_;
  std::map<uint32_t, KvSlab> slabs_;               // by layer
  std::vector<std::optional<uint32_t>> layer_of_;  // by segment's index in the plan
  std::vector<LaneStep> lanes_;
};

}  // namespace tandem::npu
