// Runs a plan in process: Worker objects, an exchange region, segments called one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/plan/stage.h"
#include "services/common/step/exchange_layout.h"
#include "services/common/step/step_batch.h"
#include "services/common/testing/guarded_buffer.h"
#include "services/common/weights/weight_set.h"
#include "services/common/worker/worker.h"

namespace tandem::testing {

struct RunLimits {
  uint32_t max_rows = 64;
  uint32_t max_sequences = 8;
  uint32_t max_outputs = 64;
  uint32_t max_logit_outputs = 64;
  uint32_t context_len = 0;  // 0: the model's
  uint32_t block_tokens = 16;
  uint32_t num_blocks[kNumKvGroups] = {0, 0};  // 0: enough for max_sequences of context_len
  uint32_t num_lanes = 1;
  DType kv_dtype = DType::kF16;
  DType port_dtype = DType::kF16;  // CreatePlanned takes the plan's
  uint32_t plan = 0;               // of the workers
  uint32_t max_pictures =
      0;  // of a step; of a vision plan too, where the other numbers mean nothing
  uint64_t kv_area_bytes = 0;
};
StepLimits MakeStepLimits(const ModelConfig& config, const RunLimits& limits);

// A lone segment: submitted and waited for.
absl::StatusOr<SegmentResult> RunSegment(Worker& worker, const SegmentRun& run);

// A segment of one stage, its tensors all passing through the exchange region.
Segment SingleStage(Stage stage, const ModelConfig& config);
// Vision as the only segment.
std::vector<Segment> VisionPlan(const ModelConfig& config);
// The whole decoder as one segment of worker 0.
std::vector<Segment> WholeModel(const ModelConfig& config);
// Single-thread.
class PlanRunner {
 public:
  // Makes the exchange region and has each worker load the segments that name it (by index into
  // `workers`); segment indices are set to positions in `segments`.
  // `workers`: borrowed; must outlive this.  Errors are the workers' own, with their name.
  static absl::StatusOr<std::unique_ptr<PlanRunner>> Create(
      std::shared_ptr<const WeightSet> weights, std::vector<Worker*> workers,
      std::vector<Segment> segments, const RunLimits& limits);

  // Places the model on `workers` by their descriptions and the policy, as the gateway does.
  static absl::StatusOr<std::unique_ptr<PlanRunner>> CreatePlanned(
      std::shared_ptr<const WeightSet> weights, const std::vector<Worker*>& workers,
      const PlacementPolicy& policy, const RunLimits& limits);

  const ModelConfig& config() const { return weights_->config(); }
  const StepLimits& limits() const { return limits_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<LoadReport>& load_reports() const { return load_reports_; }
  const Exchange& exchange() const { return *exchange_; }

  // Writes the step into the exchange region, checks it there as a worker's service would, and
  // runs every segment.
  absl::Status RunStep(const StepBatch& step, uint32_t lane = 0);
  // The parts of RunStep, for tests that run segments one at a time.
  absl::Status WriteAndCheckStep(const StepBatch& step, uint32_t lane = 0);
  absl::StatusOr<SegmentResult> RunSegment(uint32_t segment_index, uint32_t lane = 0);

  // For plans of one segment: writes and submits the step; waits for the oldest submitted.  If its
  // masks follow, they are written until MasksReady.
  absl::Status SubmitStep(const StepBatch& step, uint32_t lane, bool masks_follow = false);
  void MasksReady() { workers_[0]->MasksReady(plan_); }
  absl::StatusOr<SegmentResult> WaitForStep();

  // Has every worker copy its layers.
  absl::Status CopyKv(const KvCopy& copy);
  std::span<std::byte> KvArea() const { return Area(exchange_->layout.kv, 0); }

  DType port_dtype() const { return port_dtype_; }
  // A port's rows in the exchange region, [num_rows, row].
  std::vector<float> ReadPort(Port port, uint32_t num_rows, uint32_t lane = 0) const;
  void WritePort(Port port, std::span<const float> values, uint32_t lane = 0);
  // Writes a mask of the step, [MaskWords(vocab_size)].
  void WriteMask(uint32_t mask, std::span<const uint32_t> words, uint32_t lane = 0);
  // Writes a picture's pixels, [3, image_size, image_size], or rows that Embed is to take.
  void WritePixels(uint32_t picture, std::span<const float> pixels, uint32_t lane = 0);
  void WriteSoftTokens(uint32_t first_row, std::span<const float> rows, uint32_t lane = 0);
  // The first `num_rows` rows of soft tokens, [num_rows, hidden_dim].
  std::vector<float> SoftTokens(uint32_t num_rows, uint32_t lane = 0) const;
  const OutputResult& Output(uint32_t output, uint32_t lane = 0) const;
  std::span<const float> Logits(uint32_t output, uint32_t lane = 0) const;
  std::span<const float> Pooled(uint32_t p, uint32_t lane = 0) const;
  uint32_t Guess(uint32_t output, uint32_t lane = 0) const;

  // Fills a lane with guard bytes, and checks that beyond the rows and outputs of the step last
  // written nothing was touched in ports, candidates, logits, pooled sums and Vision's soft tokens.
  void FillGuards(uint32_t lane = 0);
  ::testing::AssertionResult GuardsIntact(uint32_t lane = 0) const;

 private:
  PlanRunner() = default;
  std::span<std::byte> Area(const ExchangeArea& area, uint32_t lane) const {
    return exchange_->Area(lane, area);
  }

  uint32_t plan_ = 0;
  std::shared_ptr<const WeightSet> weights_;
  std::vector<Worker*> workers_;  // Borrowed.
  std::vector<Segment> segments_;
  StepLimits limits_;
  DType port_dtype_ = DType::kF16;
  std::shared_ptr<const Exchange> exchange_;
  std::vector<LoadReport> load_reports_;
  struct LaneStep {
    std::vector<std::byte> storage;
    StepBatch step;
  };
  std::vector<LaneStep> steps_;  // by lane
};

}  // namespace tandem::testing
