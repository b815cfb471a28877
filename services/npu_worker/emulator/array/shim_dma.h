// The DMA of a shim tile: sixteen descriptors, two channels in each direction, a queue of tasks for
// each.
//
// A task takes effect when the cores ask for its words, and not before.  So it has ended only where
// the flow of data proves it: control code that counts on more (writes a descriptor that may be in
// use, puts a fifth task into a queue that may be full) is refused here, and would depend on timing
// on a device.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/npu_worker/control/shim_descriptor.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/array/transfer_walk.h"

namespace tandem::npu::emulator {

// Where the array sees address 0 of the device's memory.  XRT 2.25 adds it to the addresses that it writes into ELFs.
inline constexpr uint64_t kMemoryInArray = 0x80000000;

// Thread-compatible.
class ShimDma {
 public:
  explicit ShimDma(uint32_t column) : column_(column) {}

  // What commands may reach; borrowed, must outlive their tasks.  Forgets where tokens go: each command
  // must say so itself.
  void SetMemory(const AddressSpace::View* memory) {
    memory_ = memory;
    for (Channel& channel : channels_) channel.control = 0;
  }

  // Control code writes a register, `offset` bytes within the tile.  INVALID_ARGUMENT: a register
  // that is not emulated, a malformed descriptor, a descriptor in use; RESOURCE_EXHAUSTED: the
  // queue may be full; OUT_OF_RANGE: a transfer that leaves its buffer.
  absl::Status WriteRegister(uint32_t offset, uint32_t value);
  // For masked writes: of descriptors and channels' control.  INVALID_ARGUMENT: another register.
  absl::StatusOr<uint32_t> ReadRegister(uint32_t offset) const;
  // Adds a device address, and kMemoryInArray, to the address in the descriptor whose address word is at `offset`, as
  // the firmware does.
  absl::Status Patch(uint32_t offset, uint64_t address);

  // Words that tasks of a channel have still to move.
  uint64_t Remaining(DmaDirection direction, uint32_t channel) const {
    return channels_[Index(direction, channel)].remaining;
  }
  // The next words from memory, or to it.  REQUIRES words.size() <= Remaining().
  void Read(uint32_t channel, std::span<uint32_t> words);
  void Write(uint32_t channel, std::span<const uint32_t> words);
  // False: no task with a token has ended since the last one was taken.
  bool TakeToken(DmaDirection direction, uint32_t channel);
  // From now on the first word that a descriptor writes to memory is another.
  void DamageWrites() { damage_ = true; }
  // From now on each transfer to memory writes a word too many.
  void OverrunWrites() { overrun_ = true; }

  // INVALID_ARGUMENT: tasks or tokens are left.
  absl::Status CheckIdle() const;

 private:
  struct Descriptor {
    std::array<uint32_t, 8> words{};
    uint32_t repetition = 0;  // of the next execution
    uint32_t users = 0;       // tasks
  };
  struct Task {
    std::deque<TransferWalk> walks;
    std::vector<uint32_t> descriptors;
    bool with_token = false;
  };
  struct Channel {
    std::deque<Task> tasks;
    uint64_t remaining = 0;  // words of `tasks`
    uint32_t control = 0;    // who gets the tokens
    uint32_t num_tokens = 0;
  };

  // The descriptor, or the channel by its control or queue register, at an offset; nullopt: none.
  static std::optional<size_t> DescriptorAt(uint32_t offset);
  static std::optional<size_t> ControlAt(uint32_t offset);
  static std::optional<size_t> QueueAt(uint32_t offset);
  static size_t Index(DmaDirection direction, uint32_t channel) {
    return static_cast<size_t>(direction) * kShimChannels + channel;
  }
  std::string Name(size_t channel) const;
  absl::Status StartTask(size_t channel, uint32_t value);
  absl::StatusOr<TransferWalk> Execute(Descriptor& descriptor);
  // Ends the tasks at the front that have moved all their words.
  void Retire(Channel& channel);

  const uint32_t column_;
  const AddressSpace::View* memory_ = nullptr;
  std::array<Descriptor, kShimDescriptors> descriptors_;
  std::array<Channel, 2 * kShimChannels> channels_;
  bool damage_ = false;
  bool overrun_ = false;
};

}  // namespace tandem::npu::emulator
