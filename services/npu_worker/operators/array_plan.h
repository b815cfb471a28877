// A model's Attend and Out stages on an array: everything a step needs exists before the first.
//
// In a step, for each layer: the rows' queries go to a buffer of the array's, keys and values to their places
// in the cache, the group's control code runs over the layer's cache, and the output goes to the exchange
// region.  Control code is made once a step for each KV group: its layers differ in their buffers alone.
// What passes between stages of a segment is bfloat16; what crosses workers is as well where the plan's ports
// are, else it is converted.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/npu_worker/backend/backend.h"
#include "services/npu_worker/operators/attention_commands.h"
#include "services/npu_worker/operators/ffn_stage.h"
#include "services/npu_worker/operators/kv_slabs.h"
#include "services/npu_worker/operators/opened_operator.h"
#include "services/npu_worker/operators/out_projection.h"
#include "services/npu_worker/operators/qkv_stage.h"
#include "services/npu_worker/operators/step_runs.h"
#include "services/npu_worker/package/package.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

class ArrayPlan final : public BackendPlan {
 public:
  // Operators that the plan's stages do without may be missing.
  struct Operators {
    OpenedOperator attention, rows;
    OpenedGemms gemms;
  };
  // Whether one of the segments has such a stage.
  static bool HasStage(const ModelLoad& load, StageKind kind);
  // Role and layer of each matrix that the load's stages of an array read.
  static std::vector<std::pair<WeightRole, uint32_t>> MatricesOf(const ModelLoad& load);

  // Errors as Backend::Load.
  static absl::StatusOr<std::unique_ptr<ArrayPlan>> Create(
      Operators operators, ModelLoad load,
      const std::function<void(double, std::string_view)>& progress);

  LoadReport report() const override;
  // A command that ends with an error is UNAVAILABLE.
  absl::StatusOr<SegmentResult> Run(const SegmentRun& run, absl::Duration timeout) override;
  absl::Status CopyKv(const KvCopy& copy) override;

 private:
  struct GroupStep {
    StepRuns runs;
    AttentionCode code;
  };
  using LaneStep = std::array<GroupStep, kNumKvGroups>;

  using LoadedSegment = std::vector<Stage>;  // empty: not loaded here

  ArrayPlan(Operators operators, ModelLoad load)
      : operators_(std::move(operators)),
        load_(std::move(load)),
        kv_layout_(load_.weights->config(), load_.limits) {}
  absl::Status Prepare(const std::function<void(double, std::string_view)>& progress);
  absl::Status MakeBuffers(const std::function<void(double, std::string_view)>& progress);
  absl::Status ReadSegments();
  bool CanRun(StageKind kind) const;
  // Of the caches of all layers with Attend here.
  uint64_t KvBytes() const;
  // Sets weight_bytes_: of the copies that stages read, in all layers that have one here.
  absl::Status CountWeights();
  // Of layers with Attend: their cache; of the other stages: their weights.
  absl::Status CheckMemory() const;
  absl::Status MakeSlabs();
  absl::Status MakeWeights(const std::function<void(double, std::string_view)>& progress);
  KvGroup GroupOf(uint32_t layer_idx) const;
  SlabShape ShapeOf(KvGroup group) const;
  // The lane's runs and control code for a group, made if they are not there yet.
  absl::StatusOr<GroupStep*> StepOf(const SegmentRun& run, KvGroup group, const SlabShape& shape);
  // Rows of a port of 16 bits.
  std::span<uint16_t> PortRows(uint32_t lane, Port port, uint32_t num_rows) const;
  // float32 rows of one.
  std::span<float> FloatRows(uint32_t lane, Port port, uint32_t num_rows) const;
  // Of q, k, v and attention; `stays`: in the segment.
  DType DTypeOf(bool stays) const { return stays ? DType::kBf16 : load_.port_dtype; }
  // Whether other workers write or read any of them.
  bool HasPorts() const;
  // All return nanoseconds on the device.  `has_input`: it is the stage's before in the segment;
  // `keeps_output`: it is for the next one there.
  absl::StatusOr<int64_t> RunStage(const SegmentRun& run, const LoadedSegment& segment,
                                   size_t index, absl::Duration timeout);
  absl::StatusOr<int64_t> Attend(const SegmentRun& run, uint32_t layer_idx, bool has_input,
                                 bool keeps_output, absl::Duration timeout);
  absl::StatusOr<int64_t> Project(const SegmentRun& run, uint32_t layer_idx, bool has_input,
                                  absl::Duration timeout);
  absl::StatusOr<int64_t> MakeQkv(const SegmentRun& run, uint32_t layer_idx, bool keeps_output,
                                  absl::Duration timeout);
  absl::StatusOr<int64_t> FeedForward(const SegmentRun& run, uint32_t layer_idx,
                                      absl::Duration timeout);

  // Destroyed in the reverse order: what uses a kernel goes before it.
  const Operators operators_;
  ModelLoad load_;
  const KvCopyLayout kv_layout_;
  // Before the commands over it: those wait for one that is under way when they go.
  std::map<uint32_t, KvSlab> slabs_;             // by layer
  std::unique_ptr<AttentionCommands> commands_;  // where a segment attends
  std::unique_ptr<OutProjection> projection_;  // where a segment has such stages, as the following
  std::unique_ptr<QkvStage> qkv_;
  std::unique_ptr<FfnStage> ffn_;
  std::vector<LoadedSegment> segments_;  // by index in the plan
  uint64_t weight_bytes_ = 0;
  std::vector<LaneStep> lanes_;
};

}  // namespace tandem::npu
