// The words of one execution of a shim descriptor, in the order in which the DMA moves them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "services/npu_worker/control/shim_descriptor.h"

namespace tandem::npu::emulator {

// Thread-compatible.
class TransferWalk {
 public:
  // Repetition `repetition` of the transfer.  `memory`: from the descriptor's address to the end of
  // the buffer that holds it; borrowed, must outlive this.  OUT_OF_RANGE: a word lies past the end.
  static absl::StatusOr<TransferWalk> Create(const ShimTransfer& transfer, uint32_t repetition,
                                             std::span<std::byte> memory);

  uint64_t remaining() const { return transfer_.length - position_; }
  bool has_begun() const { return position_ > 0; }
  // The next words, from memory or to it.  REQUIRES words.size() <= remaining().
  void Read(std::span<uint32_t> words);
  void Write(std::span<const uint32_t> words);
  // Writes a word behind the last one, where the buffer has one.
  void Overrun();

 private:
  TransferWalk(const ShimTransfer& transfer, uint64_t start, std::span<std::byte> memory)
      : transfer_(transfer), start_(start), memory_(memory) {}
  // Where the next word lies, and how many words from there on lie side by side.
  std::byte* Next(uint64_t* run) const;

  ShimTransfer transfer_;
  uint64_t start_ = 0;  // in words
  std::span<std::byte> memory_;
  uint64_t position_ = 0;
};

}  // namespace tandem::npu::emulator
