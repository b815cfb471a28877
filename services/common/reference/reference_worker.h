// A Worker on the host over the reference arithmetic, for tests that need workers and no device.
//
// It keeps a paged KV cache and passes q, k, v and attention through float16 at the same places
// whatever the segments, so that every placement gives the same bits.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/common/reference/stages.h"
#include "services/common/worker/worker.h"

namespace tandem::reference {

struct ReferenceWorkerOptions {
  std::string name = "reference0";
  DeviceKind kind = DeviceKind::kGpu;
  bool emulated = false;
  std::vector<StageKind> stages;  // empty: all
  uint32_t max_rows = 1024;
  int num_threads = 1;
};

class ReferenceWorker : public BlockingWorker {
 public:
  explicit ReferenceWorker(ReferenceWorkerOptions options = {});

  const WorkerDescription& description() const override { return description_; }
  absl::StatusOr<LoadReport> Load(
      ModelLoad load, const std::function<void(double, std::string_view)>& progress) override;
  void Unload() override;
  absl::Status CheckHealth() override { return absl::OkStatus(); }

 private:
  // One layer's cache; position p of block b at row b * block_tokens + p % block_tokens.
  struct KvLayer {
    std::vector<float> keys;    // [num_blocks * block_tokens, num_kv_heads, head_dim]
    std::vector<float> values;  // the same
  };

  absl::StatusOr<SegmentResult> Run(const SegmentRun& run) override;
  absl::StatusOr<uint64_t> AllocateCache(const ModelLoad& load, const std::vector<Stage>& stages);
  void RunStage(Stage stage, const SegmentRun& run);
  void Attend(uint32_t layer_idx, const StepBatch& step);
  void WriteHead(const SegmentRun& run);
  void WritePooled(const SegmentRun& run);
  void ReadPorts(PortMask ports, uint32_t lane, uint32_t num_rows);
  void WritePorts(PortMask ports, uint32_t lane);
  std::vector<float>& PortRows(Port port);

  WorkerDescription description_;
  int num_threads_;
  ModelLoad load_;
  std::unique_ptr<Parameters> parameters_;  // null: no model
  std::vector<KvLayer> kv_;                 // [num_layers], empty where this worker has no Attend
  Activations rows_;                        // of the step in progress
  std::vector<uint32_t> guesses_;           // of the step before, by output
};

}  // namespace tandem::reference
