// A model as a worker loads it, with shapes alone: its weights take address space, but no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"

namespace tandem::report {

struct ModelRequest {
  std::string model;           // a GGUF file, a folder, or "synthetic:gemma3-27b?type=q4_0"
  uint32_t max_rows = 512;     // in a step
  uint32_t max_sequences = 8;  // and outputs of a step
  uint32_t context_len = 0;    // 0: 8192, or the model's where that is less
  DType kv_dtype = DType::kF16;
};

// The whole model in one segment.  Errors are those of the model's reader.
absl::StatusOr<ModelLoad> PlanModel(const ModelRequest& request);

// A step of sequences that have `depth` positions each and add `rows` of their own; each ends in an
// output.
class PlannedStep {
 public:
  PlannedStep(const StepLimits& limits, uint32_t sequences, uint32_t rows, uint32_t depth);
  StepBatch batch() const { return {header_, rows_, sequences_, outputs_, table_, {}, {}}; }

 private:
  StepHeader header_;
  std::vector<RowEntry> rows_;
  std::vector<SequenceEntry> sequences_;
  std::vector<OutputEntry> outputs_;
  std::vector<uint32_t> table_;
};

}  // namespace tandem::report
