// SOP1: scalar operations of one source, and those on EXEC.
#include <chrono>

#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

enum class SccOf { kKept, kResult };

template <class Function, SccOf kScc>
void Unary32(Wave& wave, const Instruction& i) {
  const uint32_t result = Function{}(ReadScalar32(wave, i, i.src[0]));
  if (kScc == SccOf::kResult) wave.scc = result != 0;
  wave.SetSgpr(i.dst, result);
}
template <class Function, SccOf kScc>
void Unary64(Wave& wave, const Instruction& i) {
  const uint64_t result = Function{}(ReadScalar64(wave, i, i.src[0]));
  if (kScc == SccOf::kResult) wave.scc = result != 0;
  wave.SetScalar64(i.dst, result);
}
template <class Function, SccOf kScc>
void Narrow(Wave& wave, const Instruction& i) {
  const uint32_t result = Function{}(ReadScalar64(wave, i, i.src[0]));
  if (kScc == SccOf::kResult) wave.scc = result != 0;
  wave.SetSgpr(i.dst, result);
}

template <SccOf kScc = SccOf::kKept, class Function>
constexpr Entry Of32(int op, const char* name, Function) {
  return Special(op, name, &Unary32<Function, kScc>, 1, Kind::kScalar);
}
template <SccOf kScc = SccOf::kKept, class Function>
constexpr Entry Of64(int op, const char* name, Function) {
  return Special(op, name, &Unary64<Function, kScc>, 1, Kind::kScalar);
}
template <SccOf kScc = SccOf::kKept, class Function>
constexpr Entry From64(int op, const char* name, Function) {
  return Special(op, name, &Narrow<Function, kScc>, 1, Kind::kScalar);
}
constexpr Entry Scalar(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 1, Kind::kScalar);
}

// EXEC combined with the source; the old EXEC goes to the destination (saveexec), or the new one
// (wrexec).  SCC: a lane is active.
template <class Function, bool k64, bool kSavesOld>
void ChangeExec(Wave& wave, const Instruction& i) {
  const uint64_t old = k64 ? wave.Scalar64(kExecLo) : wave.Sgpr(kExecLo);
  const uint64_t source = k64 ? ReadScalar64(wave, i, i.src[0]) : ReadScalar32(wave, i, i.src[0]);
  uint64_t exec = Function{}(source, old);
  if (!k64) exec = static_cast<uint32_t>(exec);
  const uint64_t saved = kSavesOld ? old : exec;
  if (k64) {
    wave.SetScalar64(kExecLo, exec);
    wave.SetScalar64(i.dst, saved);
  } else {
    wave.SetSgpr(kExecLo, static_cast<uint32_t>(exec));
    wave.SetSgpr(i.dst, static_cast<uint32_t>(saved));
  }
  wave.scc = exec != 0;
}

template <bool k64, bool kSavesOld = true, class Function>
constexpr Entry Exec(int op, const char* name, Function) {
  return Special(op, name, &ChangeExec<Function, k64, kSavesOld>, 1, Kind::kScalar);
}

template <bool k64>
void ConditionalMove(Wave& wave, const Instruction& i) {
  if (!wave.scc) return;
  if (k64) {
    wave.SetScalar64(i.dst, ReadScalar64(wave, i, i.src[0]));
  } else {
    wave.SetSgpr(i.dst, ReadScalar32(wave, i, i.src[0]));
  }
}

template <bool k64, bool kSet>
void ChangeBit(Wave& wave, const Instruction& i) {
  const uint32_t bit = ReadScalar32(wave, i, i.src[0]) & (k64 ? 63 : 31);
  const uint64_t mask = uint64_t{1} << bit;
  const uint64_t old = k64 ? wave.Scalar64(i.dst) : wave.Sgpr(i.dst);
  const uint64_t value = kSet ? old | mask : old & ~mask;
  if (k64) {
    wave.SetScalar64(i.dst, value);
  } else {
    wave.SetSgpr(i.dst, static_cast<uint32_t>(value));
  }
}

// Moves between registers whose numbers M0 adds to.
template <bool k64, bool kFrom, bool kTo>
void MoveRelative(Wave& wave, const Instruction& i) {
  const uint32_t by = wave.Sgpr(kM0);
  const uint32_t from = i.src[0] + (kFrom ? by & 0x3ff : 0);
  const uint32_t to = i.dst + (kTo ? (kFrom ? by >> 16 & 0x3ff : by) : 0);
  if (k64) {
    wave.SetScalar64(to, kFrom ? wave.Scalar64(from) : ReadScalar64(wave, i, i.src[0]));
  } else {
    wave.SetSgpr(to, kFrom ? wave.Sgpr(from) : ReadScalar32(wave, i, i.src[0]));
  }
}

void GetPc(Wave& wave, const Instruction& i) { wave.SetScalar64(i.dst, wave.next_pc); }
void SetPc(Wave& wave, const Instruction& i) { wave.next_pc = ReadScalar64(wave, i, i.src[0]); }
void SwapPc(Wave& wave, const Instruction& i) {
  const uint64_t target = ReadScalar64(wave, i, i.src[0]);
  wave.SetScalar64(i.dst, wave.next_pc);
  wave.next_pc = target;
}

// Message 0x83 asks for the real time, in steps of 10 ns.
void SendMessageReturn(Wave& wave, const Instruction& i) {
  constexpr uint32_t kRealTime = 0x83;
  if (i.src[0] != kRealTime) {
    wave.Fail(std::string(i.name) + " of message " + std::to_string(i.src[0]));
    return;
  }
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  wave.SetScalar64(i.dst,
                   static_cast<uint64_t>(
                       std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() / 10));
}

uint32_t SignsAbove(uint64_t value, int bits) {
  const uint64_t wide =
      bits == 32 ? static_cast<uint64_t>(int64_t{static_cast<int32_t>(value)}) : value;
  const uint64_t folded = static_cast<int64_t>(wide) < 0 ? ~wide : wide;
  if (folded == 0) return ~0u;
  return static_cast<uint32_t>(__builtin_clzll(folded) - (64 - bits));
}

uint64_t Repeat2(uint32_t value) {
  uint64_t result = 0;
  for (int bit = 0; bit < 32; ++bit) {
    if ((value >> bit & 1) != 0) result |= uint64_t{3} << (2 * bit);
  }
  return result;
}

// A bit for each group of 4 bits that has one.
uint64_t QuadMask(uint64_t value) {
  uint64_t result = 0;
  for (int quad = 0; quad < 16; ++quad) {
    if ((value >> (4 * quad) & 15) != 0) result |= uint64_t{1} << quad;
  }
  return result;
}
// All bits of each group of 4 that has one.
uint64_t WholeQuads(uint64_t value) {
  uint64_t result = 0;
  for (int quad = 0; quad < 16; ++quad) {
    if ((value >> (4 * quad) & 15) != 0) result |= uint64_t{15} << (4 * quad);
  }
  return result;
}

uint64_t Reverse64(uint64_t value) {
  return uint64_t{ReverseBits(static_cast<uint32_t>(value))} << 32 |
         ReverseBits(static_cast<uint32_t>(value >> 32));
}

constexpr SccOf kResult = SccOf::kResult;

const Entry kSop1[] = {
    Of32(0, "s_mov_b32", [](uint32_t a) { return a; }),
    Of64(1, "s_mov_b64", [](uint64_t a) { return a; }),
    Scalar(2, "s_cmov_b32", &ConditionalMove<false>),
    Scalar(3, "s_cmov_b64", &ConditionalMove<true>),
    Of32(4, "s_brev_b32", [](uint32_t a) { return ReverseBits(a); }),
    Of64(5, "s_brev_b64", [](uint64_t a) { return Reverse64(a); }),
    Of32(8, "s_ctz_i32_b32",
         [](uint32_t a) { return a == 0 ? ~0u : static_cast<uint32_t>(__builtin_ctz(a)); }),
    From64(9, "s_ctz_i32_b64",
           [](uint64_t a) { return a == 0 ? ~0u : static_cast<uint32_t>(__builtin_ctzll(a)); }),
    Of32(10, "s_clz_i32_u32",
         [](uint32_t a) { return a == 0 ? ~0u : static_cast<uint32_t>(__builtin_clz(a)); }),
    From64(11, "s_clz_i32_u64",
           [](uint64_t a) { return a == 0 ? ~0u : static_cast<uint32_t>(__builtin_clzll(a)); }),
    Of32(12, "s_cls_i32", [](uint32_t a) { return SignsAbove(a, 32); }),
    From64(13, "s_cls_i32_i64", [](uint64_t a) { return SignsAbove(a, 64); }),
    Of32(14, "s_sext_i32_i8",
         [](uint32_t a) { return static_cast<uint32_t>(SignExtend(a & 0xff, 8)); }),
    Of32(15, "s_sext_i32_i16",
         [](uint32_t a) { return static_cast<uint32_t>(SignExtend(a & 0xffff, 16)); }),
    Scalar(16, "s_bitset0_b32", &ChangeBit<false, false>),
    Scalar(17, "s_bitset0_b64", &ChangeBit<true, false>),
    Scalar(18, "s_bitset1_b32", &ChangeBit<false, true>),
    Scalar(19, "s_bitset1_b64", &ChangeBit<true, true>),
    Scalar(20, "s_bitreplicate_b64_b32",
           [](Wave& wave, const Instruction& i) {
             wave.SetScalar64(i.dst, Repeat2(ReadScalar32(wave, i, i.src[0])));
           }),
    Of32<kResult>(21, "s_abs_i32",
                  [](uint32_t a) { return static_cast<int32_t>(a) < 0 ? 0u - a : a; }),
    Of32<kResult>(22, "s_bcnt0_i32_b32",
                  [](uint32_t a) { return static_cast<uint32_t>(__builtin_popcount(~a)); }),
    From64<kResult>(23, "s_bcnt0_i32_b64",
                    [](uint64_t a) { return static_cast<uint32_t>(__builtin_popcountll(~a)); }),
    Of32<kResult>(24, "s_bcnt1_i32_b32",
                  [](uint32_t a) { return static_cast<uint32_t>(__builtin_popcount(a)); }),
    From64<kResult>(25, "s_bcnt1_i32_b64",
                    [](uint64_t a) { return static_cast<uint32_t>(__builtin_popcountll(a)); }),
    Of32<kResult>(26, "s_quadmask_b32",
                  [](uint32_t a) { return static_cast<uint32_t>(QuadMask(a)); }),
    Of64<kResult>(27, "s_quadmask_b64", [](uint64_t a) { return QuadMask(a); }),
    Of32<kResult>(28, "s_wqm_b32", [](uint32_t a) { return static_cast<uint32_t>(WholeQuads(a)); }),
    Of64<kResult>(29, "s_wqm_b64", [](uint64_t a) { return WholeQuads(a); }),
    Of32<kResult>(30, "s_not_b32", [](uint32_t a) { return ~a; }),
    Of64<kResult>(31, "s_not_b64", [](uint64_t a) { return ~a; }),

    Exec<false>(32, "s_and_saveexec_b32", [](uint64_t s, uint64_t e) { return s & e; }),
    Exec<true>(33, "s_and_saveexec_b64", [](uint64_t s, uint64_t e) { return s & e; }),
    Exec<false>(34, "s_or_saveexec_b32", [](uint64_t s, uint64_t e) { return s | e; }),
    Exec<true>(35, "s_or_saveexec_b64", [](uint64_t s, uint64_t e) { return s | e; }),
    Exec<false>(36, "s_xor_saveexec_b32", [](uint64_t s, uint64_t e) { return s ^ e; }),
    Exec<true>(37, "s_xor_saveexec_b64", [](uint64_t s, uint64_t e) { return s ^ e; }),
    Exec<false>(38, "s_nand_saveexec_b32", [](uint64_t s, uint64_t e) { return ~(s & e); }),
    Exec<true>(39, "s_nand_saveexec_b64", [](uint64_t s, uint64_t e) { return ~(s & e); }),
    Exec<false>(40, "s_nor_saveexec_b32", [](uint64_t s, uint64_t e) { return ~(s | e); }),
    Exec<true>(41, "s_nor_saveexec_b64", [](uint64_t s, uint64_t e) { return ~(s | e); }),
    Exec<false>(42, "s_xnor_saveexec_b32", [](uint64_t s, uint64_t e) { return ~(s ^ e); }),
    Exec<true>(43, "s_xnor_saveexec_b64", [](uint64_t s, uint64_t e) { return ~(s ^ e); }),
    Exec<false>(44, "s_and_not0_saveexec_b32", [](uint64_t s, uint64_t e) { return ~s & e; }),
    Exec<true>(45, "s_and_not0_saveexec_b64", [](uint64_t s, uint64_t e) { return ~s & e; }),
    Exec<false>(46, "s_or_not0_saveexec_b32", [](uint64_t s, uint64_t e) { return ~s | e; }),
    Exec<true>(47, "s_or_not0_saveexec_b64", [](uint64_t s, uint64_t e) { return ~s | e; }),
    Exec<false>(48, "s_and_not1_saveexec_b32", [](uint64_t s, uint64_t e) { return s & ~e; }),
    Exec<true>(49, "s_and_not1_saveexec_b64", [](uint64_t s, uint64_t e) { return s & ~e; }),
    Exec<false>(50, "s_or_not1_saveexec_b32", [](uint64_t s, uint64_t e) { return s | ~e; }),
    Exec<true>(51, "s_or_not1_saveexec_b64", [](uint64_t s, uint64_t e) { return s | ~e; }),
    Exec<false, false>(52, "s_and_not0_wrexec_b32", [](uint64_t s, uint64_t e) { return ~s & e; }),
    Exec<true, false>(53, "s_and_not0_wrexec_b64", [](uint64_t s, uint64_t e) { return ~s & e; }),
    Exec<false, false>(54, "s_and_not1_wrexec_b32", [](uint64_t s, uint64_t e) { return s & ~e; }),
    Exec<true, false>(55, "s_and_not1_wrexec_b64", [](uint64_t s, uint64_t e) { return s & ~e; }),

    Scalar(64, "s_movrels_b32", &MoveRelative<false, true, false>),
    Scalar(65, "s_movrels_b64", &MoveRelative<true, true, false>),
    Scalar(66, "s_movreld_b32", &MoveRelative<false, false, true>),
    Scalar(67, "s_movreld_b64", &MoveRelative<true, false, true>),
    Scalar(68, "s_movrelsd_2_b32", &MoveRelative<false, true, true>),
    Scalar(71, "s_getpc_b64", &GetPc),
    Scalar(72, "s_setpc_b64", &SetPc),
    Scalar(73, "s_swappc_b64", &SwapPc),
    Scalar(77, "s_sendmsg_rtn_b64", &SendMessageReturn),
};

}  // namespace

Table Sop1Table() { return kSop1; }

}  // namespace tandem::rdna
