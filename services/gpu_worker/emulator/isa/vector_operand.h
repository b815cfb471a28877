// Vector sources and results: modifiers, denormals, lane swaps (DPP), and the mask of lanes.
#pragma once

#include <array>
#include <cstdint>

#include "services/gpu_worker/emulator/isa/scalar_operand.h"
#include "services/gpu_worker/emulator/isa/wave.h"

namespace tandem::rdna {

using Lanes32 = std::array<uint32_t, kMaxLanes>;
using Lanes64 = std::array<uint64_t, kMaxLanes>;

// Source `index` of each lane, with abs, neg, op_sel and denormals as `type` says.  Returns the
// register itself or `temporary`.  16-bit types: in the low half, the high half is 0.
const uint32_t* LoadLanes32(const Wave& wave, const Instruction& instruction, int index, Type type,
                            Lanes32& temporary);
const uint64_t* LoadLanes64(const Wave& wave, const Instruction& instruction, int index, Type type,
                            Lanes64& temporary);

// Lanes that the instruction writes: the active ones, less those that DPP leaves out.
uint64_t WrittenLanes(const Wave& wave, const Instruction& instruction);

// Writes the register of lanes in `mask`, bits unchanged.
void WriteLanes32(Wave& wave, uint32_t vgpr, const uint32_t* values, uint64_t mask);
void WriteLanes64(Wave& wave, uint32_t vgpr, const uint64_t* values, uint64_t mask);
void WriteLanes16(Wave& wave, uint32_t vgpr, bool high, const uint32_t* values, uint64_t mask);

// Applies omod, clamp and denormals of floats and writes the result to the destination.  16-bit
// types keep the destination's other half.
void StoreLanes32(Wave& wave, const Instruction& instruction, Type type, uint32_t* values);
void StoreLanes64(Wave& wave, const Instruction& instruction, Type type, uint64_t* values);

// The first two sources multiplied, plus the third, in float32.
void FusedHandler(Wave& wave, const Instruction& instruction);

// The lane that lane `lane` takes its first source from; negative: there is no such lane.
int SourceLane(const LaneSwap& swap, int lane);

// Sets the CPU's rounding for a float operation, and sets it back.
class RoundingScope {
 public:
  explicit RoundingScope(uint32_t round);
  ~RoundingScope();
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  uint32_t round_;
};

}  // namespace tandem::rdna
