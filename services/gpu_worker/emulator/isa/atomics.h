// What atomic operations make of a value in memory, for LDS and global memory alike.
#pragma once

#include <cstdint>
#include <type_traits>

#include "services/gpu_worker/emulator/isa/numbers.h"

namespace tandem::rdna {

// Word: uint32_t or uint64_t.  Each gets the old value and the operand.
template <class Word>
struct AtomicOps {
  using Signed = std::make_signed_t<Word>;
  using Float = std::conditional_t<sizeof(Word) == 4, float, double>;
  static Float Number(Word bits) { return std::bit_cast<Float>(bits); }
  static Word Bits(Float value) { return std::bit_cast<Word>(value); }

  struct Swap {
    Word operator()(Word, Word data) const { return data; }
  };
  struct Add {
    Word operator()(Word old, Word data) const { return old + data; }
  };
  struct Sub {
    Word operator()(Word old, Word data) const { return old - data; }
  };
  struct ReverseSub {
    Word operator()(Word old, Word data) const { return data - old; }
  };
  // Not below 0.
  struct ClampedSub {
    Word operator()(Word old, Word data) const { return old >= data ? old - data : 0; }
  };
  struct MinSigned {
    Word operator()(Word old, Word data) const {
      return static_cast<Signed>(data) < static_cast<Signed>(old) ? data : old;
    }
  };
  struct MaxSigned {
    Word operator()(Word old, Word data) const {
      return static_cast<Signed>(data) > static_cast<Signed>(old) ? data : old;
    }
  };
  struct Min {
    Word operator()(Word old, Word data) const { return data < old ? data : old; }
  };
  struct Max {
    Word operator()(Word old, Word data) const { return data > old ? data : old; }
  };
  struct And {
    Word operator()(Word old, Word data) const { return old & data; }
  };
  struct Or {
    Word operator()(Word old, Word data) const { return old | data; }
  };
  struct Xor {
    Word operator()(Word old, Word data) const { return old ^ data; }
  };
  // From 0 to the operand, round and round.
  struct Increment {
    Word operator()(Word old, Word data) const { return old >= data ? 0 : old + 1; }
  };
  struct Decrement {
    Word operator()(Word old, Word data) const { return old == 0 || old > data ? data : old - 1; }
  };
  struct MinFloat {
    Word operator()(Word old, Word data) const { return Bits(Minimum(Number(old), Number(data))); }
  };
  struct MaxFloat {
    Word operator()(Word old, Word data) const { return Bits(Maximum(Number(old), Number(data))); }
  };
  struct AddFloat {
    Word operator()(Word old, Word data) const { return Bits(Number(old) + Number(data)); }
  };
};

}  // namespace tandem::rdna
