// Finds races in LDS: results that depend on which of two waves comes first, since no barrier is
// between them.
//
//   read after write, write after read   a race, unless the write changes nothing
//   write after write                    a race once somebody reads the byte; the kernels have
//                                        stores that only keep the compiler from moving loads
//   atomic operations among themselves   no race; with reads and writes, a race
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace tandem::rdna {

// Single-thread; for one workgroup after the other.
class LdsRaceCheck {
 public:
  // A workgroup with `bytes` of LDS begins.
  void BeginGroup(uint32_t bytes);
  // All waves have passed a barrier.
  void PassBarrier();

  // Wave 0 to 31 uses bytes [address, address + kBytes).  Each describes the race, if any.
  template <uint32_t kBytes>
  std::optional<std::string> Read(uint32_t wave, uint32_t address) {
    if (Conflicts<kBytes>(writes_, wave, address) || Conflicts<kBytes>(atomics_, wave, address) ||
        IsContested<kBytes>(address)) {
      return DescribeRead("reads", wave, address, kBytes, atomics_, "changed");
    }
    Note<kBytes>(reads_, wave, address);
    return std::nullopt;
  }
  template <uint32_t kBytes>
  std::optional<std::string> Change(uint32_t wave, uint32_t address) {
    if (Conflicts<kBytes>(writes_, wave, address) || Conflicts<kBytes>(reads_, wave, address) ||
        IsContested<kBytes>(address)) {
      return DescribeRead("changes", wave, address, kBytes, reads_, "read");
    }
    Note<kBytes>(atomics_, wave, address);
    return std::nullopt;
  }
  // `before` and `after`: what the bytes hold.
  std::optional<std::string> Write(uint32_t wave, uint32_t address, uint32_t bytes,
                                   const std::byte* before, const std::byte* after);

 private:
  // A byte's last use of a kind: 256 * the epoch + the wave, or kSeveralWaves.  An epoch lies between two barriers.
  using Uses = std::vector<int32_t>;
  static constexpr int32_t kSeveralWaves = 255;

  int32_t UseBy(uint32_t wave) const { return epoch_ + static_cast<int32_t>(wave); }
  // Another wave's use since the last barrier.
  bool IsOthers(int32_t use, int32_t mine) const { return use >= epoch_ && use != mine; }
  // A whole word's uses at once: most accesses are of words.
  using Four = int32_t __attribute__((vector_size(16)));
  template <uint32_t kBytes>
  bool Conflicts(const Uses& uses, uint32_t wave, uint32_t address) const {
    const int32_t mine = UseBy(wave);
    if constexpr (kBytes % 4 == 0) {
      Four any = {};
      for (uint32_t i = 0; i < kBytes; i += 4) {
        Four use;
        std::memcpy(&use, &uses[address + i], sizeof(use));
        any |= (use >= epoch_) & (use != mine);
      }
      const auto halves = std::bit_cast<std::array<uint64_t, 2>>(any);
      return (halves[0] | halves[1]) != 0;
    }
    bool any = false;
    for (uint32_t i = 0; i < kBytes; ++i) any = any || IsOthers(uses[address + i], mine);
    return any;
  }
  template <uint32_t kBytes>
  bool IsContested(uint32_t address) const {
    // In words: a call of memcmp takes longer than all else.
    using Word = std::conditional_t<kBytes % 4 == 0, uint32_t, uint8_t>;
    uint32_t any = 0;
    for (uint32_t i = 0; i < kBytes; i += sizeof(Word)) {
      Word word;
      std::memcpy(&word, &contested_[address + i], sizeof(word));
      any |= word;
    }
    return any != 0;
  }
  template <uint32_t kBytes>
  void Note(Uses& uses, uint32_t wave, uint32_t address) {
    const int32_t mine = UseBy(wave), several = epoch_ + kSeveralWaves;
    if constexpr (kBytes % 4 == 0) {
      for (uint32_t i = 0; i < kBytes; i += 4) {
        Four use;
        std::memcpy(&use, &uses[address + i], sizeof(use));
        const Four others = (use >= epoch_) & (use != mine);
        use = (others & several) | (~others & mine);
        std::memcpy(&uses[address + i], &use, sizeof(use));
      }
      return;
    }
    for (uint32_t i = 0; i < kBytes; ++i) {
      int32_t& use = uses[address + i];
      use = IsOthers(use, mine) ? several : mine;
    }
  }
  // The first byte of those that is contested, written by another wave or in `others`.
  std::string DescribeRead(const char* verb, uint32_t wave, uint32_t address, uint32_t bytes,
                           const Uses& others, const char* earlier) const;
  static std::string Describe(const char* verb, uint32_t wave, const char* earlier, int32_t use,
                              uint32_t address);

  int32_t epoch_ = 0;  // in units of 256
  Uses writes_, reads_, atomics_;
  // Waves wrote different values without a barrier: the content is unknown.
  std::vector<uint8_t> contested_;
};

}  // namespace tandem::rdna
