// DS: atomic operations on LDS.  Lanes come one after the other, the lowest first.
#include "services/gpu_worker/emulator/isa/atomics.h"
#include "services/gpu_worker/emulator/isa/lds_access.h"
#include "services/gpu_worker/emulator/isa/tables.h"

namespace tandem::rdna {
namespace {

template <class Word>
Word DataOf(const Wave& wave, uint32_t vgpr, int lane) {
  if constexpr (sizeof(Word) == 4) {
    return wave.Vgpr(vgpr)[lane];
  } else {
    return wave.Vgpr(vgpr)[lane] | uint64_t{wave.Vgpr(vgpr + 1)[lane]} << 32;
  }
}

template <class Word>
void ReturnOld(Wave& wave, uint32_t vgpr, int lane, Word old) {
  wave.Vgpr(vgpr)[lane] = static_cast<uint32_t>(old);
  if constexpr (sizeof(Word) == 8) wave.Vgpr(vgpr + 1)[lane] = static_cast<uint32_t>(old >> 32);
}

template <class Word, class Operation, bool kReturns>
void Atomic(Wave& wave, const Instruction& i) {
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t address = wave.Vgpr(i.address)[lane] + static_cast<uint32_t>(i.offset);
    const Word data = DataOf<Word>(wave, i.data, lane);
    const Word old =
        ChangeLds<Word>(wave, address, [&](Word value) { return Operation{}(value, data); });
    if (kReturns) ReturnOld(wave, i.dst, lane, old);
  });
}

// Two operands: what to store, and what to compare with or to mask.
template <class Word, class Operation, bool kReturns>
void AtomicOfTwo(Wave& wave, const Instruction& i) {
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t address = wave.Vgpr(i.address)[lane] + static_cast<uint32_t>(i.offset);
    const Word a = DataOf<Word>(wave, i.data, lane), b = DataOf<Word>(wave, i.data1, lane);
    const Word old =
        ChangeLds<Word>(wave, address, [&](Word value) { return Operation{}(value, a, b); });
    if (kReturns) ReturnOld(wave, i.dst, lane, old);
  });
}

// Stores the first operand if memory equals the second.
template <class Word>
struct CompareStore {
  Word operator()(Word old, Word data, Word compare) const { return old == compare ? data : old; }
};
template <class Word>
struct CompareStoreFloat {
  Word operator()(Word old, Word data, Word compare) const {
    using Ops = AtomicOps<Word>;
    return Ops::Number(old) == Ops::Number(compare) ? data : old;
  }
};
// Clears the bits of the first operand and sets those of the second.
template <class Word>
struct MaskOr {
  Word operator()(Word old, Word mask, Word data) const { return (old & ~mask) | data; }
};
// Subtracts the first operand, or adds the second if that goes below 0.
struct Wrap {
  uint32_t operator()(uint32_t old, uint32_t a, uint32_t b) const {
    return old >= a ? old - a : old + b;
  }
};

template <class Word, int kStride>
void ExchangeTwo(Wave& wave, const Instruction& i) {
  constexpr uint32_t kStep = sizeof(Word) * kStride;
  ForEachLane(wave.Exec(), [&](int lane) {
    const uint32_t base = wave.Vgpr(i.address)[lane];
    const Word data[2] = {DataOf<Word>(wave, i.data, lane), DataOf<Word>(wave, i.data1, lane)};
    const uint32_t at[2] = {base + i.offset0 * kStep, base + i.offset1 * kStep};
    for (uint32_t index = 0; index < 2; ++index) {
      const Word old = ChangeLds<Word>(wave, at[index], [&](Word) { return data[index]; });
      ReturnOld(wave, i.dst + index * static_cast<uint32_t>(sizeof(Word) / 4), lane, old);
    }
  });
}

// A counter at the offset changes by the number of active lanes; all get its old value.
template <bool kAdds>
void Count(Wave& wave, const Instruction& i) {
  const uint64_t exec = wave.Exec();
  const auto active = static_cast<uint32_t>(__builtin_popcountll(exec));
  const auto address = static_cast<uint32_t>(i.offset);
  const uint32_t old = ChangeLds<uint32_t>(
      wave, address, [&](uint32_t value) { return kAdds ? value + active : value - active; });
  ForEachLane(exec, [&](int lane) { wave.Vgpr(i.dst)[lane] = old; });
}

constexpr Entry Lds(int op, const char* name, Handler handler) {
  return Special(op, name, handler, 0, Kind::kLds);
}

using U32 = AtomicOps<uint32_t>;
using U64 = AtomicOps<uint64_t>;

// Both forms: that without a result, and that with the old value, whose number is higher by 32.
#define BOTH(OP, NAME, SUFFIX, WORD, OPERATION)                    \
  Lds(OP, "ds_" NAME "_" SUFFIX, &Atomic<WORD, OPERATION, false>), \
      Lds(OP + 32, "ds_" NAME "_rtn_" SUFFIX, &Atomic<WORD, OPERATION, true>)
#define BOTH_OF_TWO(OP, NAME, SUFFIX, WORD, OPERATION)                  \
  Lds(OP, "ds_" NAME "_" SUFFIX, &AtomicOfTwo<WORD, OPERATION, false>), \
      Lds(OP + 32, "ds_" NAME "_rtn_" SUFFIX, &AtomicOfTwo<WORD, OPERATION, true>)

const Entry kAtomics[] = {
    BOTH(0, "add", "u32", uint32_t, U32::Add),
    BOTH(1, "sub", "u32", uint32_t, U32::Sub),
    BOTH(2, "rsub", "u32", uint32_t, U32::ReverseSub),
    BOTH(3, "inc", "u32", uint32_t, U32::Increment),
    BOTH(4, "dec", "u32", uint32_t, U32::Decrement),
    BOTH(5, "min", "i32", uint32_t, U32::MinSigned),
    BOTH(6, "max", "i32", uint32_t, U32::MaxSigned),
    BOTH(7, "min", "u32", uint32_t, U32::Min),
    BOTH(8, "max", "u32", uint32_t, U32::Max),
    BOTH(9, "and", "b32", uint32_t, U32::And),
    BOTH(10, "or", "b32", uint32_t, U32::Or),
    BOTH(11, "xor", "b32", uint32_t, U32::Xor),
    BOTH_OF_TWO(12, "mskor", "b32", uint32_t, MaskOr<uint32_t>),
    BOTH_OF_TWO(16, "cmpstore", "b32", uint32_t, CompareStore<uint32_t>),
    BOTH_OF_TWO(17, "cmpstore", "f32", uint32_t, CompareStoreFloat<uint32_t>),
    BOTH(18, "min", "f32", uint32_t, U32::MinFloat),
    BOTH(19, "max", "f32", uint32_t, U32::MaxFloat),
    Lds(21, "ds_add_f32", &Atomic<uint32_t, U32::AddFloat, false>),
    Lds(121, "ds_add_rtn_f32", &Atomic<uint32_t, U32::AddFloat, true>),
    Lds(45, "ds_storexchg_rtn_b32", &Atomic<uint32_t, U32::Swap, true>),
    Lds(46, "ds_storexchg_2addr_rtn_b32", &ExchangeTwo<uint32_t, 1>),
    Lds(47, "ds_storexchg_2addr_stride64_rtn_b32", &ExchangeTwo<uint32_t, 64>),
    Lds(52, "ds_wrap_rtn_b32", &AtomicOfTwo<uint32_t, Wrap, true>),
    Lds(61, "ds_consume", &Count<false>),
    Lds(62, "ds_append", &Count<true>),
    BOTH(64, "add", "u64", uint64_t, U64::Add),
    BOTH(65, "sub", "u64", uint64_t, U64::Sub),
    BOTH(66, "rsub", "u64", uint64_t, U64::ReverseSub),
    BOTH(67, "inc", "u64", uint64_t, U64::Increment),
    BOTH(68, "dec", "u64", uint64_t, U64::Decrement),
    BOTH(69, "min", "i64", uint64_t, U64::MinSigned),
    BOTH(70, "max", "i64", uint64_t, U64::MaxSigned),
    BOTH(71, "min", "u64", uint64_t, U64::Min),
    BOTH(72, "max", "u64", uint64_t, U64::Max),
    BOTH(73, "and", "b64", uint64_t, U64::And),
    BOTH(74, "or", "b64", uint64_t, U64::Or),
    BOTH(75, "xor", "b64", uint64_t, U64::Xor),
    BOTH_OF_TWO(76, "mskor", "b64", uint64_t, MaskOr<uint64_t>),
    BOTH_OF_TWO(80, "cmpstore", "b64", uint64_t, CompareStore<uint64_t>),
    BOTH_OF_TWO(81, "cmpstore", "f64", uint64_t, CompareStoreFloat<uint64_t>),
    BOTH(82, "min", "f64", uint64_t, U64::MinFloat),
    BOTH(83, "max", "f64", uint64_t, U64::MaxFloat),
    Lds(109, "ds_storexchg_rtn_b64", &Atomic<uint64_t, U64::Swap, true>),
    Lds(110, "ds_storexchg_2addr_rtn_b64", &ExchangeTwo<uint64_t, 1>),
    Lds(111, "ds_storexchg_2addr_stride64_rtn_b64", &ExchangeTwo<uint64_t, 64>),
};

#undef BOTH_OF_TWO
#undef BOTH

}  // namespace

Table LdsAtomicTable() { return kAtomics; }

}  // namespace tandem::rdna
