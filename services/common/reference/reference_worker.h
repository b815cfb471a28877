// A Worker on the host over the reference arithmetic, for tests that need workers and no device.
//
// It keeps a paged KV cache and passes q, k, v and attention through the plan's port_dtype at the same
// places whatever the segments, so that every placement with the same port_dtype gives the same bits.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "services/common/reference/stages.h"
#include "services/common/reference/vision_encoder.h"
#include "services/common/worker/worker.h"

namespace tandem::reference {

struct ReferenceWorkerOptions {
  std::string name = "reference0";
  std::string driver;
  DeviceKind kind = DeviceKind::kGpu;
  bool emulated = false;
  std::vector<StageKind> stages;                                 // empty: all
  std::vector<DType> port_dtypes = {DType::kF16, DType::kBf16};  // the one it prefers first
  uint32_t max_rows = 1024;
  int num_threads = 1;
  // For tests: how much longer a stage of so many rows takes; null: no stage does.
  std::function<absl::Duration(StageKind, uint32_t num_rows)> delay;
};

class ReferenceWorker : public BlockingWorker {
 public:
  explicit ReferenceWorker(ReferenceWorkerOptions options = {});

  const WorkerDescription& description() const override { return description_; }
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;
  void Unload(uint32_t plan) override { plans_[plan] = {}; }
  absl::Status CopyKv(uint32_t plan, const KvCopy& copy) override;
  absl::Status CheckHealth() override { return absl::OkStatus(); }

 private:
  // One layer's cache; position p of block b at row b * block_tokens + p % block_tokens.
  struct KvLayer {
    std::vector<float> keys;    // [num_blocks * block_tokens, num_kv_heads, head_dim]
    std::vector<float> values;  // the same
  };

  // A plan from Load to Unload.
  struct Plan {
    ModelLoad load;
    std::unique_ptr<Parameters> parameters;  // null: not loaded
    std::unique_ptr<VisionEncoder> encoder;  // of a plan of Vision
    std::vector<KvLayer> kv;                 // [num_layers], empty where this worker has no Attend
    std::vector<uint32_t> guesses;           // of the step before, by output
    Activations rows;                        // of the segment in progress
    std::vector<Activations> lanes;          // of the steps in progress, by lane
  };

  absl::StatusOr<SegmentResult> Run(const SegmentRun& run) override;
  absl::StatusOr<uint64_t> AllocateCache(const ModelLoad& load, const std::vector<Stage>& stages,
                                         std::vector<KvLayer>& kv) const;
  void RunStage(Stage stage, const SegmentRun& run, Plan& plan) const;
  // Puts given rows in the place of the vocabulary's.
  static void TakeSoftTokens(const SegmentRun& run, Plan& plan);
  static void EncodePictures(const SegmentRun& run, const Plan& plan);
  void Attend(uint32_t layer_idx, const StepBatch& step, Plan& plan) const;
  // By row: the first and the last position that it sees.
  static std::vector<std::pair<uint32_t, uint32_t>> Visible(const ModelConfig& config,
                                                            uint32_t layer_idx,
                                                            const StepBatch& step);
  void WriteHead(const SegmentRun& run, Plan& plan) const;
  static void WritePooled(const SegmentRun& run, Plan& plan);
  static void ReadPorts(PortMask ports, uint32_t lane, uint32_t num_rows, Plan& plan);
  static void WritePorts(PortMask ports, uint32_t lane, Plan& plan);

  WorkerDescription description_;
  int num_threads_;
  std::function<absl::Duration(StageKind, uint32_t)> delay_;
  std::array<Plan, kMaxPlans> plans_;
};

}  // namespace tandem::reference
