// VOPD: two operations in one instruction.  Both read their sources before either writes.  Only in
// waves of 32.
#include "services/gpu_worker/emulator/isa/fused.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

// Names of the operations, by number; from 16 on only the second half may have them.
constexpr std::array<const char*, 19> kDualNames = {"v_dual_fmac_f32",
                                                    "v_dual_fmaak_f32",
                                                    "v_dual_fmamk_f32",
                                                    "v_dual_mul_f32",
                                                    "v_dual_add_f32",
                                                    "v_dual_sub_f32",
                                                    "v_dual_subrev_f32",
                                                    "v_dual_mul_dx9_zero_f32",
                                                    "v_dual_mov_b32",
                                                    "v_dual_cndmask_b32",
                                                    "v_dual_max_f32",
                                                    "v_dual_min_f32",
                                                    "v_dual_dot2acc_f32_f16",
                                                    nullptr,
                                                    nullptr,
                                                    nullptr,
                                                    "v_dual_add_nc_u32",
                                                    "v_dual_lshlrev_b32",
                                                    "v_dual_and_b32"};

enum DualOp {
  kFmac,
  kFmaak,
  kFmamk,
  kMul,
  kAdd,
  kSub,
  kSubrev,
  kMulDx9,
  kMov,
  kCndmask,
  kMax,
  kMin,
  kDot2,
  kAddNc = 16,
  kLshlrev,
  kAnd
};

bool IsFloat(uint32_t op) { return op <= kMulDx9 || op == kMax || op == kMin; }

// One half's results, without float results' denormals.
void Compute(Wave& wave, const Instruction& instruction, const DualHalf& half, Lanes32& out) {
  // A view of this half as a VOP3.
  Instruction view = instruction;
  view.src = {half.src[0], half.src[1], 0};
  const Type type = IsFloat(half.op) ? Type::kF32 : half.op == kDot2 ? Type::kP16 : Type::kB32;
  Lanes32 a_storage, b_storage;
  const uint32_t* a = LoadLanes32(wave, view, 0, type, a_storage);
  const uint32_t* b = LoadLanes32(wave, view, 1, type, b_storage);
  const uint32_t* old = wave.Vgpr(half.dst);
  const bool flush = !wave.mode.keep_denormals32_in;
  uint32_t literal = instruction.literal;
  if (flush) literal = Flush32(literal);
  const uint64_t select = wave.MaskAt(kVccLo);
  const auto each = [&](auto function) {
    for (int lane = 0; lane < kLaneStep; ++lane) out[lane] = function(lane);
  };
  const auto each_float = [&](auto function) {
    each([&](int lane) { return AsBits(function(AsFloat(a[lane]), AsFloat(b[lane]))); });
  };
  const auto addend = [&](int lane) { return AsFloat(flush ? Flush32(old[lane]) : old[lane]); };
  switch (half.op) {
    case kFmac:
      each([&](int lane) { return flush ? Flush32(old[lane]) : old[lane]; });
      FusedMultiplyAdd(a, b, out.data(), out.data(), kLaneStep);
      break;
    case kFmaak:
      each_float([&](float x, float y) { return std::fma(x, y, AsFloat(literal)); });
      break;
    case kFmamk:
      each_float([&](float x, float y) { return std::fma(x, AsFloat(literal), y); });
      break;
    case kMul:
      each_float([](float x, float y) { return x * y; });
      break;
    case kAdd:
      each_float([](float x, float y) { return x + y; });
      break;
    case kSub:
      each_float([](float x, float y) { return x - y; });
      break;
    case kSubrev:
      each_float([](float x, float y) { return y - x; });
      break;
    case kMulDx9:
      each_float([](float x, float y) { return x == 0 || y == 0 ? 0.0f : x * y; });
      break;
    case kMax:
      each_float([](float x, float y) { return Maximum(x, y); });
      break;
    case kMin:
      each_float([](float x, float y) { return Minimum(x, y); });
      break;
    case kMov:
      each([&](int lane) { return a[lane]; });
      break;
    case kCndmask:
      each([&](int lane) { return (select >> lane & 1) != 0 ? b[lane] : a[lane]; });
      break;
    case kDot2:
      each([&](int lane) {
        const double sum =
            static_cast<double>(HalfToFloat(a[lane] & 0xffff)) * HalfToFloat(b[lane] & 0xffff) +
            static_cast<double>(HalfToFloat(a[lane] >> 16)) * HalfToFloat(b[lane] >> 16) +
            addend(lane);
        return AsBits(static_cast<float>(sum));
      });
      break;
    case kAddNc:
      each([&](int lane) { return a[lane] + b[lane]; });
      break;
    case kLshlrev:
      each([&](int lane) { return b[lane] << (a[lane] & 31); });
      break;
    default:
      each([&](int lane) { return a[lane] & b[lane]; });
      break;
  }
}

void Store(Wave& wave, const Instruction& instruction, const DualHalf& half, Lanes32& values) {
  Instruction view = instruction;
  view.dst = half.dst;
  StoreLanes32(wave, view, IsFloat(half.op) || half.op == kDot2 ? Type::kF32 : Type::kB32,
               values.data());
}

}  // namespace

void RunDual(Wave& wave, const Instruction& instruction) {
  if (wave.lanes != 32) {
    wave.Fail("VOPD in a wave of 64");
    return;
  }
  const RoundingScope scope(wave.mode.round32);
  std::array<Lanes32, 2> out;
  for (int half = 0; half < 2; ++half) {
    Compute(wave, instruction, instruction.dual[half], out[half]);
  }
  for (int half = 0; half < 2; ++half) {
    Store(wave, instruction, instruction.dual[half], out[half]);
  }
}

const char* DualName(uint32_t op, bool second) {
  return op >= kDualNames.size() || (!second && op >= 16) ? nullptr : kDualNames[op];
}

}  // namespace tandem::rdna
