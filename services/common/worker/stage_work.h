// What a segment must at least read, write and multiply for a step, by its shapes: what a device
// achieves is measured against its ceilings by it.
//
// The last layer's Ffn is one for the rows whose results a Head in the segment reads: those of the
// step's outputs, or all where it pools.
//
//   bytes       a segment's weights once; the KV cache of the positions that rows see, once for the
//               rows of a sequence; what stages hand to one another, written once and read once;
//               of the head's weights nothing where a step only pools
//   operations  of matmuls and of attention; a multiply-add is two
//
// A floor: a device that reads weights once for each row, or computes rows that pad a tile, does
// more.  Norms, activation functions and softmax are left out, as is what lies between the two
// matmuls of Ffn.
#pragma once

#include <array>
#include <cstdint>

#include "services/common/plan/stage.h"
#include "services/common/weights/weight_set.h"
#include "services/common/worker/step_batch.h"

namespace tandem {

struct StageWork {
  uint64_t bytes = 0;
  uint64_t operations = 0;
};
// By StageKind, summed over the stages of a kind.
using SegmentWork = std::array<StageWork, kNumStageKinds>;

// What rows at positions [first, first + num_rows) of one sequence see in one layer.
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
  // `kv_dtype`: of the KV cache; k and v come in float16 whatever it is.
  SegmentCosts(const Segment& segment, const WeightSet& weights, DType kv_dtype);

  // In time that grows with the step's sequences, not with its rows.
  SegmentWork Of(const StepBatch& step) const;

 private:
  struct Kind {
    uint64_t weight_bytes = 0;
    uint64_t row_bytes = 0;
    uint64_t row_operations = 0;
  };
  static void Add(const Kind& kind, uint64_t num_rows, StageWork& work);
  void AddStage(Stage stage, const WeightSet& weights, Kind& kind);

  std::array<Kind, kNumStageKinds> kinds_;
  Kind last_ffn_;  // before a Head; not in kinds_
  // Layers whose Attend is here, by KvGroup.
  uint64_t attend_layers_[kNumKvGroups] = {};
  uint64_t kv_position_bytes_ = 0;  // of one position in one layer
  uint64_t pair_operations_ = 0;    // of one row and one position that it sees, in one layer
  uint64_t window_ = 0;
};

}  // namespace tandem
