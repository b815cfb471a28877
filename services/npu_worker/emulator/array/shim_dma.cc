#include "services/npu_worker/emulator/array/shim_dma.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint32_t kDescriptors = 0x1D000;
constexpr uint32_t kDescriptorBytes = 32;
constexpr uint32_t kWordsOfDescriptor = 8;

}  // namespace

std::string ShimDma::Name(size_t channel) const {
  return absl::StrFormat("column %d, channel %d %s", column_, channel % kShimChannels,
                         channel < kShimChannels ? "to memory" : "from memory");
}

std::optional<size_t> ShimDma::DescriptorAt(uint32_t offset) {
  const uint32_t index = (offset - kDescriptors) / kDescriptorBytes;
  return offset >= kDescriptors && index < kShimDescriptors ? std::optional<size_t>(index)
                                                            : std::nullopt;
}

std::optional<size_t> ShimDma::QueueAt(uint32_t offset) {
  for (size_t i = 0; i < 2 * kShimChannels; ++i) {
    const auto direction = static_cast<DmaDirection>(i / kShimChannels);
    if (offset == ShimQueueAddress(0, direction, i % kShimChannels)) return i;
  }
  return std::nullopt;
}

std::optional<size_t> ShimDma::ControlAt(uint32_t offset) {
  return QueueAt(offset + sizeof(uint32_t));
}

absl::StatusOr<uint32_t> ShimDma::ReadRegister(uint32_t offset) const {
  if (const auto index = DescriptorAt(offset); index.has_value()) {
    return descriptors_[*index]
        .words[(offset - kDescriptors) % kDescriptorBytes / sizeof(uint32_t)];
  }
  if (const auto channel = ControlAt(offset); channel.has_value()) {
    return channels_[*channel].control;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("column %d: register %#x of the shim tile cannot be read", column_, offset));
}

absl::Status ShimDma::WriteRegister(uint32_t offset, uint32_t value) {
  if (const auto index = DescriptorAt(offset); index.has_value()) {
    Descriptor& descriptor = descriptors_[*index];
    if (descriptor.users > 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("column %d: descriptor %d is written, and a task that may not have ended "
                          "uses it",
                          column_, *index));
    }
    descriptor.words[(offset - kDescriptors) % kDescriptorBytes / sizeof(uint32_t)] = value;
    descriptor.repetition = 0;
    return absl::OkStatus();
  }
  if (const auto channel = QueueAt(offset); channel.has_value()) return StartTask(*channel, value);
  if (const auto channel = ControlAt(offset);
      channel.has_value() && (value & ~kTokenControllerMask) == 0) {
    channels_[*channel].control = value;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "column %d: %#x in register %#x of the shim tile is not emulated", column_, value, offset));
}

absl::Status ShimDma::Patch(uint32_t offset, uint64_t address) {
  const auto index = DescriptorAt(offset);
  if (!index.has_value() || (offset - kDescriptors) % kDescriptorBytes != sizeof(uint32_t)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "column %d: patch of %#x, which is no descriptor's address", column_, offset));
  }
  const std::array<uint32_t, 8>& words = descriptors_[*index].words;
  const uint64_t patched = (words[1] | uint64_t{words[2]} << 32) + kMemoryInArray + address;
  TANDEM_RETURN_IF_ERROR(WriteRegister(offset, static_cast<uint32_t>(patched)));
  return WriteRegister(offset + sizeof(uint32_t), static_cast<uint32_t>(patched >> 32));
}

absl::StatusOr<TransferWalk> ShimDma::Execute(Descriptor& descriptor) {
  std::array<uint32_t, kWordsOfDescriptor> words = descriptor.words;
  const uint64_t address = words[1] | uint64_t{words[2]} << 32;
  words[1] = words[2] = 0;
  TANDEM_ASSIGN_OR_RETURN(const ShimTransfer transfer, DecodeShimTransfer(words));
  if (address % sizeof(uint32_t) != 0) {
    return absl::OutOfRangeError(
        absl::StrFormat("address %#x is no multiple of %d", address, sizeof(uint32_t)));
  }
  if (address < kMemoryInArray) {
    return absl::OutOfRangeError(
        absl::StrFormat("address %#x is below the array's view of memory", address));
  }
  TANDEM_CHECK(memory_ != nullptr);
  TANDEM_ASSIGN_OR_RETURN(const auto memory, memory_->Buffer(address - kMemoryInArray));
  const uint32_t repetition =
      std::exchange(descriptor.repetition, (descriptor.repetition + 1) % transfer.num_repeats);
  return TransferWalk::Create(transfer, repetition, memory);
}

absl::Status ShimDma::StartTask(size_t channel, uint32_t value) {
  const uint32_t first = value & 0xF;
  const uint32_t num_repeats = ((value >> 16) & 0xFF) + 1;
  Task task{.with_token = value >> 31 != 0};
  if (value != ShimTask(first, num_repeats, task.with_token)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: task %#x is not understood", Name(channel), value));
  }
  if (task.with_token && channels_[channel].control != kTokenController << kTokenControllerShift) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: a task with a token, and the channel's tokens go to controller %d, "
        "which is not the one that waits, %d",
        Name(channel), channels_[channel].control >> kTokenControllerShift, kTokenController));
  }
  if (channels_[channel].tasks.size() >= kShimQueue) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("%s: a task beyond the %d of the queue", Name(channel), kShimQueue));
  }
  for (std::optional<uint32_t> next = first; next.has_value();) {
    if (task.descriptors.size() == kShimDescriptors) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: a chain of descriptors without end", Name(channel)));
    }
    task.descriptors.push_back(*next);
    const uint32_t last_word = descriptors_[*next].words[7];
    next = (last_word >> 26 & 1) != 0 ? std::optional(last_word >> 27 & 0xF) : std::nullopt;
  }
  for (uint32_t i = 0; i < num_repeats; ++i) {
    for (const uint32_t index : task.descriptors) {
      auto walk = Execute(descriptors_[index]);
      if (!walk.ok()) {
        return absl::Status(walk.status().code(),
                            absl::StrFormat("%s, descriptor %d: %s", Name(channel), index,
                                            std::string(walk.status().message())));
      }
      task.walks.push_back(*std::move(walk));
    }
  }
  for (const uint32_t index : task.descriptors) ++descriptors_[index].users;
  for (const TransferWalk& walk : task.walks) channels_[channel].remaining += walk.remaining();
  channels_[channel].tasks.push_back(std::move(task));
  return absl::OkStatus();
}

void ShimDma::Retire(Channel& channel) {
  while (!channel.tasks.empty()) {
    Task& task = channel.tasks.front();
    while (!task.walks.empty() && task.walks.front().remaining() == 0) task.walks.pop_front();
    if (!task.walks.empty()) return;
    for (const uint32_t index : task.descriptors) --descriptors_[index].users;
    if (task.with_token) ++channel.num_tokens;
    channel.tasks.pop_front();
  }
}

void ShimDma::Read(uint32_t channel, std::span<uint32_t> words) {
  Channel& from = channels_[Index(DmaDirection::kToTile, channel)];
  TANDEM_CHECK(words.size() <= from.remaining);
  from.remaining -= words.size();
  while (!words.empty()) {
    TransferWalk& walk = from.tasks.front().walks.front();
    const auto part = words.first(std::min<uint64_t>(words.size(), walk.remaining()));
    walk.Read(part);
    words = words.subspan(part.size());
    Retire(from);
  }
}

void ShimDma::Write(uint32_t channel, std::span<const uint32_t> words) {
  Channel& to = channels_[Index(DmaDirection::kFromTile, channel)];
  TANDEM_CHECK(words.size() <= to.remaining);
  to.remaining -= words.size();
  while (!words.empty()) {
    TransferWalk& walk = to.tasks.front().walks.front();
    auto part = words.first(std::min<uint64_t>(words.size(), walk.remaining()));
    const uint32_t other = part.front() ^ 0x400000;
    if (damage_ && !walk.has_begun()) part = {&other, 1};
    walk.Write(part);
    if (overrun_ && walk.remaining() == 0) walk.Overrun();
    words = words.subspan(part.size());
    Retire(to);
  }
}

bool ShimDma::TakeToken(DmaDirection direction, uint32_t channel) {
  uint32_t& num_tokens = channels_[Index(direction, channel)].num_tokens;
  if (num_tokens == 0) return false;
  --num_tokens;
  return true;
}

absl::Status ShimDma::CheckIdle() const {
  for (size_t i = 0; i < channels_.size(); ++i) {
    const Channel& channel = channels_[i];
    if (channel.tasks.empty() && channel.num_tokens == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: control code has ended with %d tasks that may not have ended and %d "
                        "tokens that no sync took",
                        Name(i), channel.tasks.size(), channel.num_tokens));
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu::emulator
