// What the programs of cores share: where control code leaves a core's parameters, which lock stands for
// what, and rings of objects that the core's DMA fills and empties.
//
// A program waits for its parameters, does the work that they describe, and waits again.  Each stream of a
// core has two locks that count objects: how many the producer may still write, and how many the consumer
// may still read.  The array design (../array) gives the core's DMA the other end of both.
#pragma once

namespace tandem::npu {

// Control code writes the parameters to this address of the core's data memory and sets this lock to 1
// (../control/core_parameters.h).
inline constexpr unsigned kCoreParameterAddress = 0xFC00;
inline constexpr unsigned kCoreParameterLock = 15;

// The streams of a core: from the shim's channels to the tile 0 and 1, and to memory.
enum class CoreStream : unsigned { kFirst = 0, kSecond = 1, kOutput = 2 };

// Objects that may be written to a stream's buffers, and that may be read.
constexpr unsigned FreeLock(CoreStream stream) { return 2 * static_cast<unsigned>(stream); }
constexpr unsigned FullLock(CoreStream stream) { return FreeLock(stream) + 1; }

}  // namespace tandem::npu

#ifdef TANDEM_CORE_PROGRAM

namespace tandem::npu {
namespace {

// A core names the locks of its own tile from 48 on.
constexpr unsigned kOwnLocks = 48;

// Waits until a lock counts `count` or more, and takes as many.  The barriers keep the buffers' loads and
// stores on their side.
inline void TakeLock(unsigned lock, unsigned count) {
  acquire_greater_equal(kOwnLocks + lock, count);
  asm volatile("" ::: "memory");
}
inline void ReleaseLock(unsigned lock, unsigned count) {
  asm volatile("" ::: "memory");
  release(kOwnLocks + lock, count);
}

inline void TakeFull(CoreStream stream, unsigned count = 1) { TakeLock(FullLock(stream), count); }
inline void ReleaseFree(CoreStream stream, unsigned count = 1) {
  ReleaseLock(FreeLock(stream), count);
}
inline void TakeFree(CoreStream stream) { TakeLock(FreeLock(stream), 1); }
inline void ReleaseFull(CoreStream stream) { ReleaseLock(FullLock(stream), 1); }

// The number of turns of a loop that releases locks.  Peano has moved the last release of a loop behind it
// (others saw it); a count in memory, which it does not look through, prevents that.
class LockCount {
 public:
  operator unsigned() const { return value_; }
  void operator+=(unsigned more) { value_ = value_ + more; }

 private:
  volatile unsigned value_ = 0;
};

// Copies of 32-byte multiples.
template <typename T>
inline void CopyWords(const T* from, T* to, unsigned count) {
  constexpr unsigned kLanes = 32 / sizeof(T);
  for (unsigned i = 0; i < count; i += kLanes) aie::store_v(to + i, aie::load_v<kLanes>(from + i));
}

}  // namespace
}  // namespace tandem::npu

#endif  // TANDEM_CORE_PROGRAM
