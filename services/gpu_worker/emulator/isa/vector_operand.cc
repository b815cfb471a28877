#include "services/gpu_worker/emulator/isa/vector_operand.h"

#include <cfenv>

#include "services/gpu_worker/emulator/isa/fused.h"
#include "services/gpu_worker/emulator/isa/numbers.h"

namespace tandem::rdna {
namespace {

constexpr uint32_t kSign32 = 0x80000000;
constexpr uint64_t kSign64 = uint64_t{1} << 63;

bool Is16(Type type) { return type == Type::kB16 || type == Type::kM16 || type == Type::kF16; }

bool HasSign(Type type) {
  return type == Type::kF32 || type == Type::kM32 || type == Type::kF16 || type == Type::kM16 ||
         type == Type::kF64;
}

// Lanes of `values` swapped as DPP says.
void SwapLanes(const Wave& wave, const LaneSwap& swap, const uint32_t* values, Lanes32& out) {
  const uint64_t exec = wave.Exec();
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const int from = SourceLane(swap, lane);
    const bool valid = from >= 0 && (swap.fetch_inactive || (exec >> from & 1) != 0);
    out[lane] = valid ? values[from] : 0;
  }
}

void Modify32(Type type, bool flush, bool abs, bool neg, int lanes, uint32_t* values) {
  const bool is16 = Is16(type);
  const uint32_t sign = is16 ? 0x8000 : kSign32;
  if (flush && is16) {
    for (int lane = 0; lane < lanes; ++lane) {
      values[lane] = Flush16(static_cast<uint16_t>(values[lane]));
    }
  } else if (flush) {
    for (int lane = 0; lane < lanes; ++lane) values[lane] = Flush32(values[lane]);
  }
  if (abs) {
    for (int lane = 0; lane < lanes; ++lane) values[lane] &= ~sign;
  }
  if (neg) {
    for (int lane = 0; lane < lanes; ++lane) values[lane] ^= sign;
  }
}

bool FlushesInput(const Wave& wave, Type type) {
  return (type == Type::kF32 && !wave.mode.keep_denormals32_in) ||
         ((type == Type::kF16 || type == Type::kF64) && !wave.mode.keep_denormals16_64_in);
}

float Scale(float value, int omod) {
  return omod == 0 ? value : value * (omod == 1 ? 2.0f : omod == 2 ? 4.0f : 0.5f);
}

double Scale(double value, int omod) {
  return omod == 0 ? value : value * (omod == 1 ? 2.0 : omod == 2 ? 4.0 : 0.5);
}

// To [0, 1]; not-a-number becomes 0.
template <class Float>
Float Clamp(Float value) {
  return value > Float(0) ? (value < Float(1) ? value : Float(1)) : Float(0);
}

// The result of an invalid operation has the sign bit set on x86, and not on the GPU.
uint32_t GpuNan32(uint32_t bits) { return bits == 0xffc00000 ? kNan32 : bits; }

}  // namespace

int SourceLane(const LaneSwap& swap, int lane) {
  if (swap.form == LaneSwap::Form::kOfEight) {
    return (lane & ~7) | static_cast<int>(swap.lanes >> (3 * (lane & 7)) & 7);
  }
  const int control = swap.control, row = lane & ~15, in_row = lane & 15, by = control & 15;
  if (control <= 0xff) return (lane & ~3) | (control >> (2 * (lane & 3)) & 3);
  switch (control & 0x1f0) {
    case 0x100:
      return in_row + by > 15 ? -1 : lane + by;  // row_shl
    case 0x110:
      return in_row - by < 0 ? -1 : lane - by;  // row_shr
    case 0x120:
      return row | ((in_row - by) & 15);  // row_ror
    case 0x140:
      return control == 0x140 ? row | (15 - in_row)  // row_mirror
                              : (lane & ~7) | (7 - (lane & 7));
    case 0x150:
      return row | by;  // row_share
    default:
      return row | (in_row ^ by);  // row_xmask
  }
}

uint64_t WrittenLanes(const Wave& wave, const Instruction& instruction) {
  uint64_t mask = wave.Exec();
  const LaneSwap& swap = instruction.swap;
  if (swap.form != LaneSwap::Form::kOfRow) return mask;
  uint64_t written = 0;
  const uint64_t exec = mask;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((swap.row_mask >> (lane / 16 % 4) & 1) == 0) continue;
    if ((swap.bank_mask >> (lane / 4 % 4) & 1) == 0) continue;
    const int from = SourceLane(swap, lane);
    const bool valid = from >= 0 && (swap.fetch_inactive || (exec >> from & 1) != 0);
    if (!valid && !swap.bound_control) continue;
    written |= uint64_t{1} << lane;
  }
  return mask & written;
}

const uint32_t* LoadLanes32(const Wave& wave, const Instruction& instruction, int index, Type type,
                            Lanes32& temporary) {
  const uint32_t code = instruction.src[index];
  const bool is16 = Is16(type);
  const bool high = is16 && (instruction.op_sel >> index & 1) != 0;
  const bool sign = HasSign(type);
  const bool abs = sign && (instruction.abs >> index & 1) != 0;
  const bool neg = sign && (instruction.neg >> index & 1) != 0;
  const bool flush = FlushesInput(wave, type);
  const bool swapped = index == 0 && instruction.swap.form != LaneSwap::Form::kNone;
  if (code < kVgpr) {
    uint32_t value = ReadScalar32(wave, instruction, code, type);
    if (is16) value = (high ? value >> 16 : value) & 0xffff;
    Modify32(type, flush, abs, neg, 1, &value);
    temporary.fill(value);
    return temporary.data();
  }
  const uint32_t* values = wave.Vgpr(code - kVgpr);
  if (!swapped && !is16 && !abs && !neg && !flush) return values;
  const int lanes = wave.lanes;
  if (swapped) {
    SwapLanes(wave, instruction.swap, values, temporary);
  } else {
    for (int lane = 0; lane < lanes; ++lane) temporary[lane] = values[lane];
  }
  if (is16) {
    const int shift = high ? 16 : 0;
    for (int lane = 0; lane < lanes; ++lane) temporary[lane] = temporary[lane] >> shift & 0xffff;
  }
  Modify32(type, flush, abs, neg, lanes, temporary.data());
  return temporary.data();
}

const uint64_t* LoadLanes64(const Wave& wave, const Instruction& instruction, int index, Type type,
                            Lanes64& temporary) {
  const uint32_t code = instruction.src[index];
  if (code < kVgpr) {
    temporary.fill(ReadScalar64(wave, instruction, code, type));
  } else {
    const uint32_t *low = wave.Vgpr(code - kVgpr), *high = wave.Vgpr(code - kVgpr + 1);
    for (int lane = 0; lane < wave.lanes; ++lane) {
      temporary[lane] = low[lane] | uint64_t{high[lane]} << 32;
    }
  }
  if (type == Type::kF64) {
    for (int lane = 0; lane < wave.lanes; ++lane) {
      uint64_t& value = temporary[lane];
      if (FlushesInput(wave, type)) value = Flush64(value);
      if ((instruction.abs >> index & 1) != 0) value &= ~kSign64;
      if ((instruction.neg >> index & 1) != 0) value ^= kSign64;
    }
  }
  return temporary.data();
}

void WriteLanes32(Wave& wave, uint32_t vgpr, const uint32_t* values, uint64_t mask) {
  uint32_t* out = wave.Vgpr(vgpr);
  if (mask == wave.LaneMask()) {
    std::memcpy(out, values, sizeof(uint32_t) * static_cast<size_t>(wave.lanes));
    return;
  }
  for (int lane = 0; lane < wave.lanes; ++lane) {
    out[lane] = (mask >> lane & 1) != 0 ? values[lane] : out[lane];
  }
}

void WriteLanes64(Wave& wave, uint32_t vgpr, const uint64_t* values, uint64_t mask) {
  uint32_t *low = wave.Vgpr(vgpr), *high = wave.Vgpr(vgpr + 1);
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    low[lane] = static_cast<uint32_t>(values[lane]);
    high[lane] = static_cast<uint32_t>(values[lane] >> 32);
  }
}

void WriteLanes16(Wave& wave, uint32_t vgpr, bool high, const uint32_t* values, uint64_t mask) {
  uint32_t* out = wave.Vgpr(vgpr);
  const int shift = high ? 16 : 0;
  const uint32_t kept = high ? 0xffff : 0xffff0000;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const uint32_t value = (out[lane] & kept) | (values[lane] & 0xffff) << shift;
    out[lane] = (mask >> lane & 1) != 0 ? value : out[lane];
  }
}

void StoreLanes32(Wave& wave, const Instruction& instruction, Type type, uint32_t* values) {
  const uint64_t mask = WrittenLanes(wave, instruction);
  const int lanes = wave.lanes;
  if (type == Type::kF32) {
    if (instruction.omod != 0) {
      for (int lane = 0; lane < lanes; ++lane) {
        values[lane] = AsBits(Scale(AsFloat(values[lane]), instruction.omod));
      }
    }
    if (instruction.clamp) {
      for (int lane = 0; lane < lanes; ++lane) {
        values[lane] = AsBits(Clamp(AsFloat(values[lane])));
      }
    }
    if (!wave.mode.keep_denormals32_out) {
      for (int lane = 0; lane < lanes; ++lane) values[lane] = Flush32(values[lane]);
    }
    for (int lane = 0; lane < lanes; ++lane) values[lane] = GpuNan32(values[lane]);
  }
  if (type == Type::kF16 && (instruction.omod != 0 || instruction.clamp)) {
    for (int lane = 0; lane < lanes; ++lane) {
      float value = Scale(HalfToFloat(values[lane]), instruction.omod);
      if (instruction.clamp) value = Clamp(value);
      values[lane] = FloatToHalf(value);
    }
  }
  if (type == Type::kF16 && !wave.mode.keep_denormals16_64_out) {
    for (int lane = 0; lane < lanes; ++lane) {
      values[lane] = Flush16(static_cast<uint16_t>(values[lane]));
    }
  }
  if (Is16(type)) {
    WriteLanes16(wave, instruction.dst, (instruction.op_sel & 8) != 0, values, mask);
  } else {
    WriteLanes32(wave, instruction.dst, values, mask);
  }
}

void StoreLanes64(Wave& wave, const Instruction& instruction, Type type, uint64_t* values) {
  if (type == Type::kF64) {
    for (int lane = 0; lane < wave.lanes; ++lane) {
      double value = Scale(AsDouble(values[lane]), instruction.omod);
      if (instruction.clamp) value = Clamp(value);
      const uint64_t bits = AsBits64(value);
      values[lane] = wave.mode.keep_denormals16_64_out ? bits : Flush64(bits);
    }
  }
  WriteLanes64(wave, instruction.dst, values, WrittenLanes(wave, instruction));
}

void FusedHandler(Wave& wave, const Instruction& instruction) {
  std::array<Lanes32, 3> storage;
  std::array<const uint32_t*, 3> source = {};
  for (int index = 0; index < 3; ++index) {
    source[index] = LoadLanes32(wave, instruction, index, Type::kF32, storage[index]);
  }
  Lanes32 out;
  {
    const RoundingScope scope(wave.mode.round32);
    FusedMultiplyAdd(source[0], source[1], source[2], out.data(), wave.lanes);
  }
  StoreLanes32(wave, instruction, Type::kF32, out.data());
}

RoundingScope::RoundingScope(uint32_t round) : round_(round) {
  constexpr std::array<int, 4> kModes = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  if (round_ != 0) std::fesetround(kModes[round_ & 3]);
}

RoundingScope::~RoundingScope() {
  if (round_ != 0) std::fesetround(FE_TONEAREST);
}

}  // namespace tandem::rdna
