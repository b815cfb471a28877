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
constexpr uint32_t kMaxRepeats = 1u << 6;
constexpr uint32_t kValid = 1u << 25;
constexpr uint32_t kLongBursts = 2u << 30;  // of 256 bytes

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
  if (transfer.length == 0 || transfer.num_repeats == 0 || transfer.num_repeats > kMaxRepeats) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shim transfer: %d words, %d times, must be 1 or more and 1 to %d",
                        transfer.length, transfer.num_repeats, kMaxRepeats));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::array<uint32_t, 8>> EncodeShimTransfer(const ShimTransfer& transfer) {
  TANDEM_RETURN_IF_ERROR(CheckFields(transfer));
  return std::array<uint32_t, 8>{transfer.length,
                                 0,
                                 0,
                                 transfer.size[0] << 20 | (transfer.step[0] - 1),
                                 kLongBursts | transfer.size[1] << 20 | (transfer.step[1] - 1),
                                 transfer.step[2] - 1,
                                 (transfer.num_repeats - 1) << 20 | (transfer.repeat_step - 1),
                                 kValid};
}

absl::StatusOr<ShimTransfer> DecodeShimTransfer(std::span<const uint32_t> words) {
  constexpr uint32_t kStepMask = kMaxStep - 1;
  if (words.size() != 8) {
    return absl::InvalidArgumentError(
        absl::StrFormat("shim descriptor: %d words, must be 8", words.size()));
  }
  const ShimTransfer transfer = {
      .length = words[0],
      .size = {(words[3] >> 20) & (kMaxSize - 1), (words[4] >> 20) & (kMaxSize - 1)},
      .step = {(words[3] & kStepMask) + 1, (words[4] & kStepMask) + 1, (words[5] & kStepMask) + 1},
      .repeat_step = (words[6] & kStepMask) + 1,
      .num_repeats = ((words[6] >> 20) & (kMaxRepeats - 1)) + 1};
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

uint32_t ShimTask(uint32_t descriptor, uint32_t num_repeats, bool with_token) {
  return (with_token ? 1u << 31 : 0) | (num_repeats - 1) << 16 | descriptor;
}

absl::Status StartShimTransfer(const ShimJob& job, const ShimTransfer& transfer,
                               Transaction& transaction) {
  TANDEM_ASSIGN_OR_RETURN(const auto words, EncodeShimTransfer(transfer));
  const uint32_t address = ShimDescriptorAddress(job.column, job.descriptor);
  transaction.BlockWrite(address, words);
  transaction.PatchAddress(address + sizeof(uint32_t), job.argument, job.offset);
  transaction.Write(ShimQueueAddress(job.column, job.direction, job.channel),
                    ShimTask(job.descriptor, transfer.num_repeats, job.with_token));
  return absl::OkStatus();
}

}  // namespace tandem::npu
