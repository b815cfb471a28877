// Vector operations across lanes.
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// The first source of one lane, whether it is active or not.
uint32_t ValueOfLane(const Wave& wave, const Instruction& instruction, int lane) {
  const uint32_t code = instruction.src[0];
  return code < kVgpr ? ReadScalar32(wave, instruction, code) : wave.Vgpr(code - kVgpr)[lane];
}

// A lane's number from a scalar source: high bits do not count.
int LaneNumber(const Wave& wave, const Instruction& instruction) {
  const uint32_t code = instruction.src[1];
  const uint32_t value =
      code < kVgpr ? ReadScalar32(wave, instruction, code) : wave.Vgpr(code - kVgpr)[0];
  return static_cast<int>(value & static_cast<uint32_t>(wave.lanes - 1));
}

void ReadFirstLane(Wave& wave, const Instruction& instruction) {
  const uint64_t exec = wave.Exec();
  const int lane = exec == 0 ? 0 : __builtin_ctzll(exec);
  wave.SetSgpr(instruction.dst, ValueOfLane(wave, instruction, lane));
}

void ReadLane(Wave& wave, const Instruction& instruction) {
  wave.SetSgpr(instruction.dst, ValueOfLane(wave, instruction, LaneNumber(wave, instruction)));
}

void WriteLane(Wave& wave, const Instruction& instruction) {
  wave.Vgpr(instruction.dst)[LaneNumber(wave, instruction)] = ValueOfLane(wave, instruction, 0);
}

// Each lane takes a lane of its row of 16, or of the row beside it: 4 bits for each lane in the
// second and third source.  op_sel bit 0: from inactive lanes too; bit 1: those read as 0.
template <bool kOtherRow>
void PermuteRow(Wave& wave, const Instruction& instruction) {
  Lanes32 storage, low_storage, high_storage;
  const uint32_t* values = LoadLanes32(wave, instruction, 0, Type::kB32, storage);
  const uint32_t* low = LoadLanes32(wave, instruction, 1, Type::kB32, low_storage);
  const uint32_t* high = LoadLanes32(wave, instruction, 2, Type::kB32, high_storage);
  const uint64_t selectors = low[0] | uint64_t{high[0]} << 32;
  const bool fetch_inactive = (instruction.op_sel & 1) != 0;
  const bool bound_control = (instruction.op_sel & 2) != 0;
  const uint64_t exec = wave.Exec();
  Lanes32 out = {};
  uint64_t written = exec;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const int row = (lane & ~15) ^ (kOtherRow ? 16 : 0);
    const int from = row | static_cast<int>(selectors >> (4 * (lane & 15)) & 15);
    if (fetch_inactive || (exec >> from & 1) != 0) {
      out[lane] = values[from];
    } else if (!bound_control) {
      written &= ~(uint64_t{1} << lane);
    }
  }
  WriteLanes32(wave, instruction.dst, out.data(), written);
}

// Lanes 0 to 31 and 32 to 63 change places; nothing happens in a wave of 32.
void PermuteHalves(Wave& wave, const Instruction& instruction) {
  if (wave.lanes == 32) return;
  Lanes32 storage, out;
  const uint32_t* values = LoadLanes32(wave, instruction, 0, Type::kB32, storage);
  for (int lane = 0; lane < wave.lanes; ++lane) out[lane] = values[lane ^ 32];
  WriteLanes32(wave, instruction.dst, out.data(), wave.Exec());
}

// How many bits of the first source belong to lanes below this one, plus the second source.
template <bool kHigh>
void CountBelow(Wave& wave, const Instruction& instruction) {
  Lanes32 mask_storage, add_storage, out;
  const uint32_t* mask = LoadLanes32(wave, instruction, 0, Type::kB32, mask_storage);
  const uint32_t* add = LoadLanes32(wave, instruction, 1, Type::kB32, add_storage);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const uint64_t below = (uint64_t{1} << lane) - 1;
    const auto counted = static_cast<uint32_t>(kHigh ? below >> 32 : below);
    out[lane] = static_cast<uint32_t>(__builtin_popcount(mask[lane] & counted)) + add[lane];
  }
  WriteLanes32(wave, instruction.dst, out.data(), WrittenLanes(wave, instruction));
}

void SwapRegisters(Wave& wave, uint32_t a, uint32_t b) {
  uint32_t *x = wave.Vgpr(a), *y = wave.Vgpr(b);
  ForEachLane(wave.Exec(), [&](int lane) { std::swap(x[lane], y[lane]); });
}

void Swap(Wave& wave, const Instruction& instruction) {
  SwapRegisters(wave, instruction.dst, instruction.src[0] - kVgpr);
}

// Halves of two registers.
void SwapHalves(Wave& wave, const Instruction& i) {
  uint32_t *a = wave.Vgpr(i.dst), *b = wave.Vgpr(i.src[0] - kVgpr);
  const int a_shift = (i.op_sel & 8) != 0 ? 16 : 0, b_shift = (i.op_sel & 1) != 0 ? 16 : 0;
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t x = a[lane] >> a_shift & 0xffff, y = b[lane] >> b_shift & 0xffff;
    a[lane] = (a[lane] & ~(0xffffu << a_shift)) | y << a_shift;
    b[lane] = (b[lane] & ~(0xffffu << b_shift)) | x << b_shift;
  });
}

void MoveRegister(Wave& wave, uint32_t dst, uint32_t src) {
  Lanes32 values;
  std::copy_n(wave.Vgpr(src), kMaxLanes, values.begin());
  WriteLanes32(wave, dst, values.data(), wave.Exec());
}

// Moves between registers whose numbers M0 adds to.
void MoveToRelative(Wave& wave, const Instruction& instruction) {
  Lanes32 storage;
  const uint32_t* values = LoadLanes32(wave, instruction, 0, Type::kB32, storage);
  Lanes32 copy;
  std::copy_n(values, kMaxLanes, copy.begin());
  WriteLanes32(wave, instruction.dst + wave.Sgpr(kM0), copy.data(), wave.Exec());
}
void MoveFromRelative(Wave& wave, const Instruction& instruction) {
  MoveRegister(wave, instruction.dst, instruction.src[0] + wave.Sgpr(kM0));
}
void MoveBothRelative(Wave& wave, const Instruction& instruction) {
  const uint32_t by = wave.Sgpr(kM0);
  MoveRegister(wave, instruction.dst + by, instruction.src[0] + by);
}
// M0 bits 9:0 for the source, 25:16 for the destination.
void MoveBothRelative2(Wave& wave, const Instruction& instruction) {
  const uint32_t by = wave.Sgpr(kM0);
  MoveRegister(wave, instruction.dst + (by >> 16 & 0x3ff), instruction.src[0] + (by & 0x3ff));
}
void SwapRelative(Wave& wave, const Instruction& instruction) {
  const uint32_t by = wave.Sgpr(kM0);
  SwapRegisters(wave, instruction.dst + (by >> 16 & 0x3ff), instruction.src[0] + (by & 0x3ff));
}

void Nothing(Wave&, const Instruction&) {}

const Entry kLanes[] = {
    Special(kVop1Base + 0, "v_nop", &Nothing, 0),
    Special(kVop1Base + 27, "v_pipeflush", &Nothing, 0),
    Special(kVop1Base + 2, "v_readfirstlane_b32", &ReadFirstLane, 1),
    Special(kVop1Base + 66, "v_movreld_b32", &MoveToRelative, 1),
    Special(kVop1Base + 67, "v_movrels_b32", &MoveFromRelative, 1),
    Special(kVop1Base + 68, "v_movrelsd_b32", &MoveBothRelative, 1),
    Special(kVop1Base + 72, "v_movrelsd_2_b32", &MoveBothRelative2, 1),
    Special(kVop1Base + 101, "v_swap_b32", &Swap, 1),
    Special(kVop1Base + 102, "v_swap_b16", &SwapHalves, 1, Kind::kVector, 8 | 1),
    Special(kVop1Base + 103, "v_permlane64_b32", &PermuteHalves, 1),
    Special(kVop1Base + 104, "v_swaprel_b32", &SwapRelative, 1),
    Special(603, "v_permlane16_b32", &PermuteRow<false>, 3),
    Special(604, "v_permlanex16_b32", &PermuteRow<true>, 3),
    Special(799, "v_mbcnt_lo_u32_b32", &CountBelow<false>, 2),
    Special(800, "v_mbcnt_hi_u32_b32", &CountBelow<true>, 2),
    Special(864, "v_readlane_b32", &ReadLane, 2),
    Special(865, "v_writelane_b32", &WriteLane, 2),
};

}  // namespace

Table LaneTable() { return kLanes; }

}  // namespace tandem::rdna
