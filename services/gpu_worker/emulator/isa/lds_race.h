// Finds races in LDS: results that depend on which of two waves comes first, since no barrier is
// between them.
//
//   read after write, write after read   a race, unless the write changes nothing
//   write after write                    a race once somebody reads the byte; the kernels have
//                                        stores that only keep the compiler from moving loads
//   atomic operations among themselves   no race; with reads and writes, a race
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tandem::rdna {

// Single-thread; for one workgroup after the other.
class LdsRaceCheck {
 public:
  // A workgroup with `bytes` of LDS begins.
  void BeginGroup(uint32_t bytes);
  // All waves have passed a barrier.
  void PassBarrier() { ++epoch_; }

  // A wave uses bytes [address, address + bytes).  Each describes the race, if any.
  std::optional<std::string> Read(uint32_t wave, uint32_t address, uint32_t bytes);
  // `before` and `after`: what the bytes hold.
  std::optional<std::string> Write(uint32_t wave, uint32_t address, uint32_t bytes,
                                   const std::byte* before, const std::byte* after);
  std::optional<std::string> Change(uint32_t wave, uint32_t address, uint32_t bytes);

 private:
  // The last users of a byte.  An epoch lies between two barriers.
  struct Use {
    uint64_t epoch = 0;
    uint32_t wave = 0;
  };
  struct Byte {
    Use write, read, atomic;
    // Waves wrote different values without a barrier: the content is unknown.
    bool contested = false;
  };

  bool ByAnother(const Use& use, uint32_t wave) const {
    return use.epoch == epoch_ && use.wave != wave;
  }
  void Note(Use& use, uint32_t wave) const;
  std::string Race(const char* verb, uint32_t wave, const char* earlier, const Use& other,
                   uint32_t address) const;

  uint64_t epoch_ = 0;
  std::vector<Byte> bytes_;
};

}  // namespace tandem::rdna
