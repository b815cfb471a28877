// Turns a segment's stages into launches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "services/common/plan/stage.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/kernel_set.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/kernels/matmul.h"
#include "services/gpu_worker/stages/exchange_access.h"
#include "services/gpu_worker/stages/layer_fusion.h"
#include "services/gpu_worker/stages/model_buffers.h"
#include "services/gpu_worker/stages/phase_recorder.h"
#include "services/gpu_worker/stages/port_places.h"
#include "services/gpu_worker/stages/stage_times.h"
#include "services/gpu_worker/stages/weight_import.h"
#include "services/gpu_worker/vulkan/command_buffer.h"

namespace tandem::gpu {

class AttentionRecorder;

// The objects that recordings refer to.  All borrowed.
struct RecordingContext {
  KernelSet* kernels = nullptr;
  const WeightSet* weights = nullptr;
  const WeightImport* import = nullptr;  // null when no stage reads weights
  const ModelBuffers* buffers = nullptr;
  const ExchangeAccess* exchange = nullptr;
  DependencyCounters* phases = nullptr;  // null: barriers only
  const StageTimes* times = nullptr;     // null: every step is one submission
  StepLimits limits;
  KvSpec kv;
  // Of q, k and v that another worker reads, and of attention that another worker wrote; what stays here
  // is float16.
  DType port_dtype = DType::kF16;
};

// The forms of a Head.
struct HeadShape {
  bool with_logits = false;  // copies logits to the exchange region
  bool masked = false;       // outputs may have masks
};

// Records the stages of one segment for one lane and row bucket, in order.  Single-use.
//
// The residual always lies in the lane's buffer.  It is copied in if the segment imports it, and
// out if the segment exports it.
class StageRecorder {
 public:
  // `sequences`: what steps may have.
  StageRecorder(const RecordingContext& context, const Segment& segment, uint32_t lane,
                uint32_t bucket, Sequences sequences, vulkan::Recorder& recorder);
  ~StageRecorder();

  // Copies in; then call Record for each stage but Head; then Finish copies out.
  absl::Status Begin();
  absl::Status Record(Stage stage);
  absl::Status Finish();
  // Whether RecordOutputsFfn may record the last layer's Ffn: this worker has it, its input from
  // Out is whole, and only the Head follows.
  bool CanLeaveLastFfn() const;
  // Records the last layer's Ffn for the rows of the outputs only, which must differ, for an output
  // bucket.  Other rows of its result are read only if the step has pooled sequences.
  absl::Status RecordOutputsFfn();
  // Records the Head for outputs [first_output, end) of an output bucket: whole tiles
  // (ModelBuffers::head_tile).
  absl::Status RecordHead(const HeadShape& shape, uint32_t first_output, uint32_t end);
  // Records the Head's part for any number of pooled sequences.
  absl::Status RecordPool();
  // Call after the last stage.
  void Close() { phases_.Close(); }

 private:
  absl::Status Embed();
  absl::Status Qkv(uint32_t layer_idx);
  absl::Status Out(uint32_t layer_idx);
  absl::Status Ffn(uint32_t layer_idx, bool outputs_alone);
  absl::Status Run(const Launch& launch) { return phases_.Run(launch); }
  // One launch per shard, all in one phase.
  absl::Status Multiply(const Matmul& matmul, const DeviceTensor& weights, const MatmulArgs& args);
  // The same for a matrix whose parts have several formats, one matmul each.
  absl::Status Multiply(std::span<const Matmul> matmuls, std::span<const DeviceTensor> parts,
                        MatmulArgs args);
  std::span<const DeviceTensor> QkvWeights(uint32_t layer_idx) const;
  // By layer.
  std::vector<LayerWeights> WeightsOfLayers() const;
  // As AddNormLaunch, over the partial sums of the matmul that made the source.
  absl::Status AddNorm(AddNormPush push, uint32_t split_k, ActivationFormat format,
                       NormRows rows = NormRows::kStep);
  absl::Status CopyResidual(uint64_t from, uint64_t to);

  const DeviceTensor& Weight(WeightRole role, uint32_t layer_idx = 0) const;
  uint64_t NormWeight(WeightRole role, uint32_t layer_idx = 0) const;

  const RecordingContext& context_;
  const ModelConfig& config_;
  const Tuning& tuning_;
  const Segment& segment_;
  const LaneBuffers& buffers_;
  const PortPlaces places_;
  const uint32_t lane_;
  const uint32_t bucket_;
  PhaseRecorder phases_;
  uint64_t step_;
  const std::unique_ptr<AttentionRecorder> attention_;
  const std::vector<LayerFusion> fusions_;  // by layer
};

}  // namespace tandem::gpu
