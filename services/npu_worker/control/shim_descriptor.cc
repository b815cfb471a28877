#include "services/npu_worker/control/shim_descriptor.h"

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {
namespace {

constexpr uint32_t kDescriptors = 0x1D000;
constexpr uint32_t kDescriptorBytes = 0x20;
constexpr uint32_t kQueues = 0x1D204;  // S2MM 0, then 8 bytes a channel: S2MM 1, MM2S 0, MM2S 1
constexpr uint32_t kChannelBytes = 8;
constexpr uint32_t kMaxSize = 1u << 10;
constexpr uint32_t kMaxStep = 1u << 20;
constexpr uint32_t kValid = 1u << 25;
constexpr uint32_t kUseNext = 1u << 26;
constexpr uint32_t kNextShift = 27;
constexpr uint32_t kLongBursts = 2u << 30;  // of 256 bytes
// AxCache 2, as mlir-aie writes it: the network on chip may join narrow accesses to wide ones.
constexpr uint32_t kJoinAccesses = 2u << 24;

// Steps and repeats are stored less one.
absl::Status CheckFields(const ShimTransfer& transfer) {
  for (const uint32_t size : transfer.size) {
    if (size >= kMaxSize) {
      return absl::InvalidArgumentError(
          absl::StrFormat("shim transfer: size %d, must be below %d", size, kMaxSize));
    }
  }
  for (const uint32_t step :
       {transfer.step[0], transfer.step[1], transfer.step[2], transfer.repeat_step}) {
    if (step == 0 || step > kMaxStep) {
      return absl::InvalidArgumentError(
          absl::StrFormat("shim transfer: step of %d words, must be 1 to %d", step, kMaxStep));
    }
  }
  if (transfer.length == 0 || transfer.num_repeats == 0 || transfer.num_repeats > kShimRepeats) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shim transfer: %d words, %d times, must be 1 or more and 1 to %d",
                        transfer.length, transfer.num_repeats, kShimRepeats));
  }
  if (transfer.next.has_value() && *transfer.next >= kShimDescriptors) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "shim transfer: descriptor %d is next, a tile has %d", *transfer.next, kShimDescriptors));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::array<uint32_t, 8>> EncodeShimTransfer(const ShimTransfer& transfer) {
  TANDEM_RETURN_IF_ERROR(CheckFields(transfer));
  const uint32_t next = transfer.next.has_value() ? *transfer.next << kNextShift | kUseNext : 0;
  return std::array<uint32_t, 8>{transfer.length,
                                 0,
                                 0,
                                 transfer.size[0] << 20 | (transfer.step[0] - 1),
                                 kLongBursts | transfer.size[1] << 20 | (transfer.step[1] - 1),
                                 kJoinAccesses | (transfer.step[2] - 1),
                                 (transfer.num_repeats - 1) << 20 | (transfer.repeat_step - 1),
                                 next | kValid};
}

absl::StatusOr<ShimTransfer> DecodeShimTransfer(std::span<const uint32_t> words) {
  constexpr uint32_t kStepMask = kMaxStep - 1;
  if (words.size() != 8) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shim descriptor: %d words, must be 8", words.size()));
  }
  ShimTransfer transfer = {
      .length = words[0],
      .size = {(words[3] >> 20) & (kMaxSize - 1), (words[4] >> 20) & (kMaxSize - 1)},
      .step = {(words[3] & kStepMask) + 1, (words[4] & kStepMask) + 1, (words[5] & kStepMask) + 1},
      .repeat_step = (words[6] & kStepMask) + 1,
      .num_repeats = ((words[6] >> 20) & (kShimRepeats - 1)) + 1};
  if ((words[7] & kUseNext) != 0) transfer.next = (words[7] >> kNextShift) & 0xF;
  TANDEM_ASSIGN_OR_RETURN(const auto encoded, EncodeShimTransfer(transfer));
  for (size_t i = 0; i < encoded.size(); ++i) {
    if (encoded[i] != words[i]) {
      return absl::InvalidArgumentError(
          absl::StrFormat("shim descriptor, word %d: %#x is not understood", i, words[i]));
    }
  }
  return transfer;
}

uint32_t ShimDescriptorAddress(uint32_t column, uint32_t index) {
  TANDEM_CHECK(index < kShimDescriptors);
  return TileAddress({.column = column}, kDescriptors + index * kDescriptorBytes);
}

uint32_t ShimQueueAddress(uint32_t column, DmaDirection direction, uint32_t channel) {
  TANDEM_CHECK(channel < kShimChannels);
  const uint32_t index = static_cast<uint32_t>(direction) * kShimChannels + channel;
  return TileAddress({.column = column}, kQueues + index * kChannelBytes);
}

// A channel's control lies before its queue.
uint32_t ShimControlAddress(uint32_t column, DmaDirection direction, uint32_t channel) {
  return ShimQueueAddress(column, direction, channel) - sizeof(uint32_t);
}

uint32_t ShimTask(uint32_t descriptor, uint32_t num_repeats, bool with_token) {
  return (with_token ? 1u << 31 : 0) | (num_repeats - 1) << 16 | descriptor;
}

void RouteTokens(const ShimChannel& channel, Transaction& transaction) {
  transaction.MaskedWrite(ShimControlAddress(channel.column, channel.direction, channel.channel),
                          kTokenController << kTokenControllerShift, kTokenControllerMask);
}

DmaToken TokenOf(const ShimChannel& channel) {
  return {.tile = {.column = channel.column},
          .direction = channel.direction,
          .channel = channel.channel};
}

absl::Status StartShimTask(const ShimChannel& channel, std::span<const ShimPart> parts,
                           bool with_token, Transaction& transaction) {
  if (parts.empty()) return absl::InvalidArgumentError("shim task: no descriptors");
  const uint32_t num_repeats = parts[0].transfer.num_repeats;
  for (size_t i = 0; i < parts.size(); ++i) {
    const ShimPart& part = parts[i];
    if (part.transfer.num_repeats != num_repeats) {
      return absl::InvalidArgumentError(
          absl::StrFormat("shim task: %d and %d repeats", num_repeats, part.transfer.num_repeats));
    }
    ShimTransfer transfer = part.transfer;
    if (i + 1 < parts.size()) transfer.next = parts[i + 1].descriptor;
    TANDEM_ASSIGN_OR_RETURN(const auto words, EncodeShimTransfer(transfer));
    const uint32_t address = ShimDescriptorAddress(channel.column, part.descriptor);
    transaction.BlockWrite(address, words);
    transaction.PatchAddress(address + sizeof(uint32_t), part.argument, part.offset);
  }
  transaction.Write(ShimQueueAddress(channel.column, channel.direction, channel.channel),
                    ShimTask(parts[0].descriptor, num_repeats, with_token));
  return absl::OkStatus();
}

}  // namespace tandem::npu
