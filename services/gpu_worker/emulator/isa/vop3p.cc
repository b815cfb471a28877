// VOP3P: packed 16-bit operations, dot products and mixed fused multiply-adds.
//
// A packed operation computes two halves.  op_sel chooses each source's half for the low result,
// op_sel_hi for the high one; neg (neg_lo) and abs (neg_hi) negate them.
#include "services/gpu_worker/emulator/isa/fused.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

uint32_t HalfOf(uint32_t value, bool high) { return high ? value >> 16 : value & 0xffff; }

struct Halves {
  std::array<uint32_t, 3> low, high;
};

// The halves of one lane's sources for both results.
Halves SelectHalves(const Instruction& instruction, int num_sources,
                    const std::array<const uint32_t*, 3>& sources, int lane, bool is_float,
                    bool flush) {
  Halves halves = {};
  for (int index = 0; index < num_sources; ++index) {
    const uint32_t value = sources[index][lane];
    halves.low[index] = HalfOf(value, (instruction.op_sel >> index & 1) != 0);
    halves.high[index] = HalfOf(value, (instruction.op_sel_hi >> index & 1) != 0);
    if (!is_float) continue;
    if (flush) {
      halves.low[index] = Flush16(static_cast<uint16_t>(halves.low[index]));
      halves.high[index] = Flush16(static_cast<uint16_t>(halves.high[index]));
    }
    if ((instruction.neg >> index & 1) != 0) halves.low[index] ^= 0x8000;
    if ((instruction.abs >> index & 1) != 0) halves.high[index] ^= 0x8000;
  }
  return halves;
}

template <bool kFloat, class Half>
void RunPacked(Wave& wave, const Instruction& instruction, int num_sources, Half half) {
  std::array<Lanes32, 3> storage;
  std::array<const uint32_t*, 3> sources = {};
  const Type type = kFloat ? Type::kP16 : Type::kB32;
  for (int index = 0; index < num_sources; ++index) {
    sources[index] = LoadLanes32(wave, instruction, index, type, storage[index]);
  }
  Lanes32 out;
  const bool flush_in = !wave.mode.keep_denormals16_64_in;
  const bool flush_out = kFloat && !wave.mode.keep_denormals16_64_out;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const Halves halves = SelectHalves(instruction, num_sources, sources, lane, kFloat, flush_in);
    auto low = static_cast<uint16_t>(half(halves.low));
    auto high = static_cast<uint16_t>(half(halves.high));
    if (flush_out) {
      low = Flush16(low);
      high = Flush16(high);
    }
    out[lane] = low | uint32_t{high} << 16;
  }
  WriteLanes32(wave, instruction.dst, out.data(), WrittenLanes(wave, instruction));
}

template <class Function, int kSources>
void PackedFloatHandler(Wave& wave, const Instruction& instruction) {
  const auto round = static_cast<Round>(wave.mode.round16_64);
  const bool clamp = instruction.clamp;
  RunPacked<true>(wave, instruction, kSources, [=](const std::array<uint32_t, 3>& source) {
    double value =
        Function{}(HalfToFloat(source[0]), HalfToFloat(source[1]), HalfToFloat(source[2]));
    if (clamp) value = value > 0 ? (value < 1 ? value : 1.0) : 0.0;
    return round == Round::kNearestEven ? FloatToHalf(OddFloat(value)) : DoubleToHalf(value, round);
  });
}

template <class Function, class Limit, int kSources>
void PackedIntegerHandler(Wave& wave, const Instruction& instruction) {
  const bool clamp = instruction.clamp;
  RunPacked<false>(wave, instruction, kSources, [=](const std::array<uint32_t, 3>& source) {
    const auto number = [](uint32_t bits) -> int64_t {
      if constexpr (std::numeric_limits<Limit>::is_signed) {
        return SignExtend(bits, 16);
      } else {
        return bits;
      }
    };
    const int64_t value = Function{}(number(source[0]), number(source[1]), number(source[2]));
    return clamp ? Saturate<Limit>(value) : static_cast<uint32_t>(value);
  });
}

template <int kSources, class Function>
constexpr Entry PackedFloat(int op, const char* name, Function) {
  return Special(op, name, &PackedFloatHandler<Function, kSources>, kSources);
}
template <class Limit, int kSources, class Function>
constexpr Entry PackedInteger(int op, const char* name, Function) {
  return Special(op, name, &PackedIntegerHandler<Function, Limit, kSources>, kSources);
}

// A fused multiply-add of float32 whose sources may be float16 halves: op_sel_hi says that a
// source is float16, op_sel which half.  The constants of such a source are float16.
template <bool kIsHalf, bool kFlushes>
void MixLanes(const uint32_t* values, int lanes, int shift, uint32_t kept, uint32_t flipped,
              Lanes32& out) {
  for (int first = 0; first < lanes; first += kLaneStep) {
    for (int lane = first; lane < first + kLaneStep; ++lane) {
      uint32_t bits = values[lane];
      if constexpr (kIsHalf) {
        bits = bits >> shift & 0xffff;
        if constexpr (kFlushes) bits = Flush16(static_cast<uint16_t>(bits));
        bits = AsBits(HalfToFloat(bits));
      } else if constexpr (kFlushes) {
        bits = Flush32(bits);
      }
      out[lane] = (bits & kept) ^ flipped;
    }
  }
}

void MixSource(const Wave& wave, const Instruction& instruction, int index, Lanes32& out) {
  const bool is_half = (instruction.op_sel_hi >> index & 1) != 0;
  Lanes32 storage;
  const uint32_t* values =
      LoadLanes32(wave, instruction, index, is_half ? Type::kP16 : Type::kB32, storage);
  const int shift = (instruction.op_sel >> index & 1) != 0 ? 16 : 0;
  const uint32_t kept = (instruction.abs >> index & 1) != 0 ? 0x7fffffff : ~0u;
  const uint32_t flipped = (instruction.neg >> index & 1) != 0 ? 0x80000000 : 0;
  const bool flushes = is_half ? !wave.mode.keep_denormals16_64_in : !wave.mode.keep_denormals32_in;
  const auto lanes = is_half ? (flushes ? &MixLanes<true, true> : &MixLanes<true, false>)
                             : (flushes ? &MixLanes<false, true> : &MixLanes<false, false>);
  lanes(values, wave.lanes, shift, kept, flipped, out);
}

enum class MixResult { kFloat, kLow, kHigh };

template <MixResult kResult>
void MixHandler(Wave& wave, const Instruction& instruction) {
  std::array<Lanes32, 3> sources;
  for (int index = 0; index < 3; ++index) MixSource(wave, instruction, index, sources[index]);
  Lanes32 out;
  Lanes32 sums;
  {
    const RoundingScope scope(wave.mode.round32);
    FusedMultiplyAdd(sources[0].data(), sources[1].data(), sources[2].data(), sums.data(),
                     wave.lanes);
  }
  for (int lane = 0; lane < wave.lanes; ++lane) {
    float value = AsFloat(sums[lane]);
    if (instruction.clamp) value = value > 0 ? (value < 1 ? value : 1.0f) : 0.0f;
    if (kResult == MixResult::kFloat) {
      out[lane] = AsBits(value);
    } else {
      out[lane] = DoubleToHalf(value, static_cast<Round>(wave.mode.round16_64));
      if (!wave.mode.keep_denormals16_64_out) {
        out[lane] = Flush16(static_cast<uint16_t>(out[lane]));
      }
    }
  }
  const uint64_t mask = WrittenLanes(wave, instruction);
  if (kResult == MixResult::kFloat) {
    if (!wave.mode.keep_denormals32_out) {
      for (uint32_t& value : out) value = Flush32(value);
    }
    WriteLanes32(wave, instruction.dst, out.data(), mask);
  } else {
    WriteLanes16(wave, instruction.dst, kResult == MixResult::kHigh, out.data(), mask);
  }
}

// One number of `kBits` bits, of either sign.
template <int kBits, bool kSigned>
uint32_t PartOf(uint32_t word, int shift) {
  const uint32_t top = word << (32 - kBits - shift);
  return kSigned ? static_cast<uint32_t>(static_cast<int32_t>(top) >> (32 - kBits))
                 : top >> (32 - kBits);
}

// The sums without the third source; they fit into 32 bits.
template <int kBits, bool kASigned, bool kBSigned>
void DotLanes(const uint32_t* a, const uint32_t* b, int lanes, Lanes32& out) {
  for (int first = 0; first < lanes; first += kLaneStep) {
    for (int lane = first; lane < first + kLaneStep; ++lane) {
      uint32_t sum = 0;
      for (int shift = 0; shift < 32; shift += kBits) {
        sum += PartOf<kBits, kASigned>(a[lane], shift) * PartOf<kBits, kBSigned>(b[lane], shift);
      }
      out[lane] = sum;
    }
  }
}

// Dot products of 8 or 4-bit integers.  neg bit 0 and 1: the source is signed.
template <int kBits, bool kChoosesSign>
void IntegerDotHandler(Wave& wave, const Instruction& instruction) {
  std::array<Lanes32, 3> storage;
  std::array<const uint32_t*, 3> source = {};
  for (int index = 0; index < 3; ++index) {
    source[index] = LoadLanes32(wave, instruction, index, Type::kB32, storage[index]);
  }
  Lanes32 out;
  switch (kChoosesSign ? instruction.neg & 3 : 0) {
    case 0:
      DotLanes<kBits, false, false>(source[0], source[1], wave.lanes, out);
      break;
    case 1:
      DotLanes<kBits, true, false>(source[0], source[1], wave.lanes, out);
      break;
    case 2:
      DotLanes<kBits, false, true>(source[0], source[1], wave.lanes, out);
      break;
    default:
      DotLanes<kBits, true, true>(source[0], source[1], wave.lanes, out);
      break;
  }
  for (int lane = 0; lane < wave.lanes; ++lane) {
    if (!instruction.clamp) {
      out[lane] += source[2][lane];
    } else if (kChoosesSign) {
      out[lane] = Saturate<int32_t>(int64_t{static_cast<int32_t>(out[lane])} +
                                    static_cast<int32_t>(source[2][lane]));
    } else {
      out[lane] = Saturate<uint32_t>(int64_t{out[lane]} + source[2][lane]);
    }
  }
  WriteLanes32(wave, instruction.dst, out.data(), WrittenLanes(wave, instruction));
}

// a.lo * b.lo + a.hi * b.hi + c in float32, rounded once.
template <bool kBf16>
void FloatDotHandler(Wave& wave, const Instruction& instruction) {
  std::array<Lanes32, 3> storage;
  std::array<const uint32_t*, 3> source = {};
  source[0] = LoadLanes32(wave, instruction, 0, Type::kP16, storage[0]);
  source[1] = LoadLanes32(wave, instruction, 1, Type::kP16, storage[1]);
  source[2] = LoadLanes32(wave, instruction, 2, Type::kB32, storage[2]);
  const auto number = [](uint32_t half) {
    return static_cast<double>(kBf16 ? Bf16ToFloat(half) : HalfToFloat(half));
  };
  Lanes32 out;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const Halves halves = SelectHalves(instruction, 2, source, lane, true, false);
    uint32_t add = source[2][lane];
    if (!wave.mode.keep_denormals32_in) add = Flush32(add);
    if ((instruction.abs & 4) != 0) add &= 0x7fffffff;
    if ((instruction.neg & 4) != 0) add ^= 0x80000000;
    const double sum = number(halves.low[0]) * number(halves.low[1]) +
                       number(halves.high[0]) * number(halves.high[1]) + AsFloat(add);
    out[lane] = AsBits(static_cast<float>(sum));
  }
  StoreLanes32(wave, instruction, Type::kF32, out.data());
}

// VOP3: the same with a 16-bit third source and result.
template <bool kBf16>
void HalfDotHandler(Wave& wave, const Instruction& instruction) {
  std::array<Lanes32, 3> storage;
  const uint32_t* a = LoadLanes32(wave, instruction, 0, Type::kP16, storage[0]);
  const uint32_t* b = LoadLanes32(wave, instruction, 1, Type::kP16, storage[1]);
  const uint32_t* c = LoadLanes32(wave, instruction, 2, Type::kM16, storage[2]);
  const auto number = [](uint32_t half) {
    return static_cast<double>(kBf16 ? Bf16ToFloat(half) : HalfToFloat(half));
  };
  Lanes32 out;
  for (int lane = 0; lane < wave.lanes; ++lane) {
    const double sum = number(a[lane] & 0xffff) * number(b[lane] & 0xffff) +
                       number(a[lane] >> 16) * number(b[lane] >> 16) + number(c[lane]);
    out[lane] = kBf16 ? FloatToBf16(static_cast<float>(sum)) : DoubleToHalf(sum);
  }
  WriteLanes16(wave, instruction.dst, (instruction.op_sel & 8) != 0, out.data(),
               WrittenLanes(wave, instruction));
}

const Entry kPacked[] = {
    PackedInteger<int16_t, 3>(0, "v_pk_mad_i16",
                              [](int64_t a, int64_t b, int64_t c) { return a * b + c; }),
    PackedInteger<uint16_t, 2>(1, "v_pk_mul_lo_u16",
                               [](int64_t a, int64_t b, int64_t) { return a * b; }),
    PackedInteger<int16_t, 2>(2, "v_pk_add_i16",
                              [](int64_t a, int64_t b, int64_t) { return a + b; }),
    PackedInteger<int16_t, 2>(3, "v_pk_sub_i16",
                              [](int64_t a, int64_t b, int64_t) { return a - b; }),
    PackedInteger<uint16_t, 2>(4, "v_pk_lshlrev_b16",
                               [](int64_t a, int64_t b, int64_t) { return b << (a & 15); }),
    PackedInteger<uint16_t, 2>(5, "v_pk_lshrrev_b16",
                               [](int64_t a, int64_t b, int64_t) { return b >> (a & 15); }),
    PackedInteger<int16_t, 2>(6, "v_pk_ashrrev_i16",
                              [](int64_t a, int64_t b, int64_t) { return b >> (a & 15); }),
    PackedInteger<int16_t, 2>(7, "v_pk_max_i16",
                              [](int64_t a, int64_t b, int64_t) { return std::max(a, b); }),
    PackedInteger<int16_t, 2>(8, "v_pk_min_i16",
                              [](int64_t a, int64_t b, int64_t) { return std::min(a, b); }),
    PackedInteger<uint16_t, 3>(9, "v_pk_mad_u16",
                               [](int64_t a, int64_t b, int64_t c) { return a * b + c; }),
    PackedInteger<uint16_t, 2>(10, "v_pk_add_u16",
                               [](int64_t a, int64_t b, int64_t) { return a + b; }),
    PackedInteger<uint16_t, 2>(11, "v_pk_sub_u16",
                               [](int64_t a, int64_t b, int64_t) { return a - b; }),
    PackedInteger<uint16_t, 2>(12, "v_pk_max_u16",
                               [](int64_t a, int64_t b, int64_t) { return std::max(a, b); }),
    PackedInteger<uint16_t, 2>(13, "v_pk_min_u16",
                               [](int64_t a, int64_t b, int64_t) { return std::min(a, b); }),
    PackedFloat<3>(14, "v_pk_fma_f16", [](double a, double b, double c) { return a * b + c; }),
    PackedFloat<2>(15, "v_pk_add_f16", [](double a, double b, double) { return a + b; }),
    PackedFloat<2>(16, "v_pk_mul_f16", [](double a, double b, double) { return a * b; }),
    PackedFloat<2>(17, "v_pk_min_f16", [](double a, double b, double) { return Minimum(a, b); }),
    PackedFloat<2>(18, "v_pk_max_f16", [](double a, double b, double) { return Maximum(a, b); }),
    Special(19, "v_dot2_f32_f16", &FloatDotHandler<false>, 3, Kind::kDot),
    Special(22, "v_dot4_i32_iu8", &IntegerDotHandler<8, true>, 3, Kind::kDot),
    Special(23, "v_dot4_u32_u8", &IntegerDotHandler<8, false>, 3, Kind::kDot),
    Special(24, "v_dot8_i32_iu4", &IntegerDotHandler<4, true>, 3, Kind::kDot),
    Special(25, "v_dot8_u32_u4", &IntegerDotHandler<4, false>, 3, Kind::kDot),
    Special(26, "v_dot2_f32_bf16", &FloatDotHandler<true>, 3, Kind::kDot),
    Special(32, "v_fma_mix_f32", &MixHandler<MixResult::kFloat>, 3),
    Special(33, "v_fma_mixlo_f16", &MixHandler<MixResult::kLow>, 3),
    Special(34, "v_fma_mixhi_f16", &MixHandler<MixResult::kHigh>, 3),
};

const Entry kHalfDots[] = {
    Special(614, "v_dot2_f16_f16", &HalfDotHandler<false>, 3, Kind::kDot),
    Special(615, "v_dot2_bf16_bf16", &HalfDotHandler<true>, 3, Kind::kDot),
};

}  // namespace

Table PackedTable() { return kPacked; }
Table HalfDotTable() { return kHalfDots; }

}  // namespace tandem::rdna
