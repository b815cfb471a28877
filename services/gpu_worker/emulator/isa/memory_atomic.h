// Atomic operations on host memory that other threads' waves use too.
#pragma once

#include <cstdint>

#include "services/gpu_worker/emulator/isa/atomics.h"
#include "services/gpu_worker/emulator/isa/wave.h"

namespace tandem::rdna {

template <class Word>
Word AtomicOperand(const Wave& wave, uint32_t vgpr, int lane) {
  if constexpr (sizeof(Word) == 4) {
    return wave.Vgpr(vgpr)[lane];
  } else {
    return wave.Vgpr(vgpr)[lane] | uint64_t{wave.Vgpr(vgpr + 1)[lane]} << 32;
  }
}

template <class Word>
void WriteAtomicResult(Wave& wave, uint32_t vgpr, int lane, Word old) {
  wave.Vgpr(vgpr)[lane] = static_cast<uint32_t>(old);
  if constexpr (sizeof(Word) == 8) wave.Vgpr(vgpr + 1)[lane] = static_cast<uint32_t>(old >> 32);
}

// Replaces the word by function(old) and returns the old one.
template <class Word, class Function>
Word ChangeMemory(std::byte* bytes, Function function) {
  auto* word = reinterpret_cast<Word*>(bytes);
  Word old = __atomic_load_n(word, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(word, &old, function(old), false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
  }
  return old;
}

// How a lane's operation changes memory; the operand of a compare-and-swap is two words, what to
// store and what to compare with.
template <class Word, class Operation>
struct LaneAtomic {
  static Word Run(const Wave& wave, uint32_t vgpr, int lane, std::byte* bytes) {
    const Word data = AtomicOperand<Word>(wave, vgpr, lane);
    return ChangeMemory<Word>(bytes, [&](Word old) { return Operation{}(old, data); });
  }
};

struct CompareAndSwap {};
struct CompareAndSwapFloat {};

template <class Word>
struct LaneAtomic<Word, CompareAndSwap> {
  static Word Run(const Wave& wave, uint32_t vgpr, int lane, std::byte* bytes) {
    const Word data = AtomicOperand<Word>(wave, vgpr, lane);
    const Word compare = AtomicOperand<Word>(wave, vgpr + sizeof(Word) / 4, lane);
    return ChangeMemory<Word>(bytes, [&](Word old) { return old == compare ? data : old; });
  }
};

template <class Word>
struct LaneAtomic<Word, CompareAndSwapFloat> {
  static Word Run(const Wave& wave, uint32_t vgpr, int lane, std::byte* bytes) {
    using Ops = AtomicOps<Word>;
    const Word data = AtomicOperand<Word>(wave, vgpr, lane);
    const Word compare = AtomicOperand<Word>(wave, vgpr + sizeof(Word) / 4, lane);
    return ChangeMemory<Word>(
        bytes, [&](Word old) { return Ops::Number(old) == Ops::Number(compare) ? data : old; });
  }
};

// The operations of global and buffer memory: MAKE(number, name, word, operation).
#define MEMORY_ATOMICS(MAKE)                                                  \
  MAKE(51, "atomic_swap_b32", uint32_t, AtomicOps<uint32_t>::Swap),           \
      MAKE(52, "atomic_cmpswap_b32", uint32_t, CompareAndSwap),               \
      MAKE(53, "atomic_add_u32", uint32_t, AtomicOps<uint32_t>::Add),         \
      MAKE(54, "atomic_sub_u32", uint32_t, AtomicOps<uint32_t>::Sub),         \
      MAKE(55, "atomic_csub_u32", uint32_t, AtomicOps<uint32_t>::ClampedSub), \
      MAKE(56, "atomic_min_i32", uint32_t, AtomicOps<uint32_t>::MinSigned),   \
      MAKE(57, "atomic_min_u32", uint32_t, AtomicOps<uint32_t>::Min),         \
      MAKE(58, "atomic_max_i32", uint32_t, AtomicOps<uint32_t>::MaxSigned),   \
      MAKE(59, "atomic_max_u32", uint32_t, AtomicOps<uint32_t>::Max),         \
      MAKE(60, "atomic_and_b32", uint32_t, AtomicOps<uint32_t>::And),         \
      MAKE(61, "atomic_or_b32", uint32_t, AtomicOps<uint32_t>::Or),           \
      MAKE(62, "atomic_xor_b32", uint32_t, AtomicOps<uint32_t>::Xor),         \
      MAKE(63, "atomic_inc_u32", uint32_t, AtomicOps<uint32_t>::Increment),   \
      MAKE(64, "atomic_dec_u32", uint32_t, AtomicOps<uint32_t>::Decrement),   \
      MAKE(65, "atomic_swap_b64", uint64_t, AtomicOps<uint64_t>::Swap),       \
      MAKE(66, "atomic_cmpswap_b64", uint64_t, CompareAndSwap),               \
      MAKE(67, "atomic_add_u64", uint64_t, AtomicOps<uint64_t>::Add),         \
      MAKE(68, "atomic_sub_u64", uint64_t, AtomicOps<uint64_t>::Sub),         \
      MAKE(69, "atomic_min_i64", uint64_t, AtomicOps<uint64_t>::MinSigned),   \
      MAKE(70, "atomic_min_u64", uint64_t, AtomicOps<uint64_t>::Min),         \
      MAKE(71, "atomic_max_i64", uint64_t, AtomicOps<uint64_t>::MaxSigned),   \
      MAKE(72, "atomic_max_u64", uint64_t, AtomicOps<uint64_t>::Max),         \
      MAKE(73, "atomic_and_b64", uint64_t, AtomicOps<uint64_t>::And),         \
      MAKE(74, "atomic_or_b64", uint64_t, AtomicOps<uint64_t>::Or),           \
      MAKE(75, "atomic_xor_b64", uint64_t, AtomicOps<uint64_t>::Xor),         \
      MAKE(76, "atomic_inc_u64", uint64_t, AtomicOps<uint64_t>::Increment),   \
      MAKE(77, "atomic_dec_u64", uint64_t, AtomicOps<uint64_t>::Decrement),   \
      MAKE(80, "atomic_cmpswap_f32", uint32_t, CompareAndSwapFloat),          \
      MAKE(81, "atomic_min_f32", uint32_t, AtomicOps<uint32_t>::MinFloat),    \
      MAKE(82, "atomic_max_f32", uint32_t, AtomicOps<uint32_t>::MaxFloat),    \
      MAKE(86, "atomic_add_f32", uint32_t, AtomicOps<uint32_t>::AddFloat)

}  // namespace tandem::rdna
