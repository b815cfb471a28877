#include "services/npu_worker/emulator/array/transfer_walk.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"

namespace tandem::npu::emulator {
namespace {

// Words of one index of the dimensions 1 and 2.  An unused dimension ends with the transfer.
uint64_t RowWords(const ShimTransfer& transfer) {
  return transfer.size[0] == 0 ? transfer.length : transfer.size[0];
}
uint64_t PlaneWords(const ShimTransfer& transfer) {
  const uint64_t row = RowWords(transfer);
  return transfer.size[1] == 0 ? std::max<uint64_t>(transfer.length, row) : row * transfer.size[1];
}

// Offset of word `position`.
uint64_t OffsetOf(const ShimTransfer& transfer, uint64_t position) {
  const uint64_t row = RowWords(transfer);
  const uint64_t plane = PlaneWords(transfer);
  return position / plane * transfer.step[2] + position % plane / row * transfer.step[1] +
         position % row * transfer.step[0];
}

// The highest offset of a word: it is the last one, or it ends the last whole row or plane.
uint64_t LastOffset(const ShimTransfer& transfer) {
  const uint64_t row = RowWords(transfer);
  const uint64_t plane = PlaneWords(transfer);
  uint64_t last = OffsetOf(transfer, transfer.length - 1);
  for (const uint64_t words : {row, plane}) {
    const uint64_t whole = transfer.length / words * words;
    if (whole > 0) last = std::max(last, OffsetOf(transfer, whole - 1));
  }
  return last;
}

}  // namespace

absl::StatusOr<TransferWalk> TransferWalk::Create(const ShimTransfer& transfer, uint32_t repetition,
                                                  std::span<std::byte> memory) {
  TANDEM_CHECK(transfer.length > 0);
  const uint64_t start = uint64_t{repetition} * transfer.repeat_step;
  const uint64_t end = (start + LastOffset(transfer) + 1) * sizeof(uint32_t);
  if (end > memory.size()) {
    return absl::OutOfRangeError(
        absl::StrFormat("a transfer of %d words ends %d bytes from its address, the buffer %d",
                        transfer.length, end, memory.size()));
  }
  return TransferWalk(transfer, start, memory);
}

std::byte* TransferWalk::Next(uint64_t* run) const {
  const uint64_t row = RowWords(transfer_);
  *run = transfer_.step[0] == 1 ? row - position_ % row : 1;
  return memory_.data() + (start_ + OffsetOf(transfer_, position_)) * sizeof(uint32_t);
}

void TransferWalk::Read(std::span<uint32_t> words) {
  TANDEM_CHECK(words.size() <= remaining());
  while (!words.empty()) {
    uint64_t run = 0;
    const std::byte* from = Next(&run);
    run = std::min<uint64_t>(run, words.size());
    std::memcpy(words.data(), from, run * sizeof(uint32_t));
    words = words.subspan(run);
    position_ += run;
  }
}

void TransferWalk::Write(std::span<const uint32_t> words) {
  TANDEM_CHECK(words.size() <= remaining());
  while (!words.empty()) {
    uint64_t run = 0;
    std::byte* to = Next(&run);
    run = std::min<uint64_t>(run, words.size());
    std::memcpy(to, words.data(), run * sizeof(uint32_t));
    words = words.subspan(run);
    position_ += run;
  }
}

void TransferWalk::Overrun() {
  constexpr uint32_t kBadWord = 0x0BADF00D;
  const uint64_t behind = (start_ + LastOffset(transfer_) + 1) * sizeof(uint32_t);
  if (behind + sizeof(kBadWord) <= memory_.size()) {
    std::memcpy(memory_.data() + behind, &kBadWord, sizeof(kBadWord));
  }
}

}  // namespace tandem::npu::emulator
