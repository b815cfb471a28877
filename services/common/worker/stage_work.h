// The least that a segment must read, write and multiply for a step, from its shapes.  Metrics
// compare it with the device's ceilings.
//
// If a Head follows in the segment, the last layer's Ffn counts only the rows that the Head reads:
// those of the step's outputs, or all rows if sequences are pooled.
//
//   bytes       a segment's weights once; the KV cache of the positions that rows see, once for all
//               rows of a sequence; activations between stages, written once and read once; no
//               weights of the head in a step that only pools
//               in a step of pictures: the encoder's weights once, and of each picture its pixels and
//               soft tokens
//   operations  of matmuls and of attention; a multiply-add is two
//
// This is a lower bound: a device that reads weights for each row, or pads tiles with rows, does
// more.  Norms, activation functions, softmax and the activations between Ffn's two matmuls do not
// count.
#pragma once

#include <array>
#include <cstdint>

#include "services/common/plan/stage.h"
#include "services/common/step/step_batch.h"
#include "services/common/weights/weight_set.h"

namespace tandem {

struct StageWork {
  uint64_t bytes = 0;
  uint64_t operations = 0;
};
// By StageKind, summed over the stages of a kind.
using SegmentWork = std::array<StageWork, kNumStageKinds>;

// Positions that rows [first, first + num_rows) of one sequence see in one layer.
struct SeenPositions {
  uint64_t earlier = 0;  // positions before `first` that any of them sees
  uint64_t pairs = 0;    // (row, position it sees), itself included
};
// `window`: positions a row sees, itself included; 0: all.
SeenPositions PositionsSeen(uint64_t first, uint64_t num_rows, uint64_t window);

// Of one segment of a plan.  Immutable.
class SegmentCosts {
 public:
  SegmentCosts() = default;  // of no stage
  // `kv_dtype`: of the KV cache.  The new k and v are float16 in any case.
  SegmentCosts(const Segment& segment, const WeightSet& weights, DType kv_dtype);

  // Time O(sequences of the step), whatever the number of rows.
  SegmentWork Of(const StepBatch& step) const;

 private:
  struct Kind {
    uint64_t weight_bytes = 0;
    uint64_t row_bytes = 0;
    uint64_t row_operations = 0;
  };
  static void Add(const Kind& kind, uint64_t num_rows, StageWork& work);
  void AddStage(Stage stage, const WeightSet& weights, Kind& kind);
  // Vision, whose rows are pictures.
  static void AddVision(const WeightSet& weights, Kind& kind);

  std::array<Kind, kNumStageKinds> kinds_;
  Kind last_ffn_;  // before a Head; not in kinds_
  // Layers whose Attend is here, by KvGroup.
  uint64_t attend_layers_[kNumKvGroups] = {};
  uint64_t kv_position_bytes_ = 0;  // of one position in one layer
  uint64_t pair_operations_ = 0;    // of one row and one position that it sees, in one layer
  uint64_t window_ = 0;
};

}  // namespace tandem
