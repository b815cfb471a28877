// Descriptors of a shim tile's DMA: what it moves between memory and the array, as AIE2 and AIE2P
// have them.
//
// A transfer walks up to three dimensions of 32-bit words, and may be repeated:
//   for i < repeats: for d2: for d1 < size_1: for d0 < size_0:
//     word at base + i * step_repeat + d2 * step_2 + d1 * step_1 + d0 * step_0
// `length` words in all end it, which fixes the size of the last dimension.
//
// A descriptor may name the one that follows it.  A task is such a chain, and its repeats run the
// whole chain again: every descriptor in it then takes its own next step_repeat.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "services/npu_worker/control/transaction.h"

namespace tandem::npu {

inline constexpr uint32_t kShimDescriptors = 16;  // of a tile
inline constexpr uint32_t kShimChannels = 2;      // for each direction
inline constexpr uint32_t kShimQueue = 4;         // tasks of a channel that have not begun
inline constexpr uint32_t kShimRepeats = 64;      // of a task
// Id of the controller that a shim tile's tokens go to: the one that mlir-aie gives shim tiles.  The
// xclbin must route packets of this id from the tile's control port to the controller.
inline constexpr uint32_t kTokenController = 15;

struct ShimTransfer {
  uint32_t length = 0;             // words of one repetition
  std::array<uint32_t, 2> size{};  // words, of the inner dimensions; 0: the dimension is not used
  std::array<uint32_t, 3> step{1, 1, 1};  // words from one index to the next, innermost first
  uint32_t repeat_step = 1;
  uint32_t num_repeats = 1;
  std::optional<uint32_t> next;  // descriptor that follows in the task
  bool operator==(const ShimTransfer&) const = default;
};

// The eight words of a descriptor; the address in words 1 and 2 is left for a patch.
// INVALID_ARGUMENT: a field that does not fit: sizes below 1,024, steps up to 2^20 words, repeats
// up to 64, 16 descriptors.
absl::StatusOr<std::array<uint32_t, 8>> EncodeShimTransfer(const ShimTransfer& transfer);
// Of words that EncodeShimTransfer could have made.  INVALID_ARGUMENT: other bits are set.
absl::StatusOr<ShimTransfer> DecodeShimTransfer(std::span<const uint32_t> words);

// Where descriptor `index` of a column's shim tile lies, and its address word.
// REQUIRES index < kShimDescriptors.
uint32_t ShimDescriptorAddress(uint32_t column, uint32_t index);
// Register whose write puts a task into a channel's queue.  REQUIRES channel < kShimChannels.
uint32_t ShimQueueAddress(uint32_t column, DmaDirection direction, uint32_t channel);
// The channel's control register, and the bits of it that hold the id of the controller.
uint32_t ShimControlAddress(uint32_t column, DmaDirection direction, uint32_t channel);
inline constexpr uint32_t kTokenControllerShift = 8;
inline constexpr uint32_t kTokenControllerMask = 0x1F << kTokenControllerShift;
// The value to write to the queue.  `with_token`: the channel sends a token when the task has ended.
uint32_t ShimTask(uint32_t descriptor, uint32_t num_repeats, bool with_token);

// A channel of a shim tile's DMA.
struct ShimChannel {
  uint32_t column = 0;
  DmaDirection direction = DmaDirection::kToTile;  // kToTile: memory is read
  uint32_t channel = 0;
  bool operator==(const ShimChannel&) const = default;
};

// One descriptor of a task: a transfer of data buffer `argument` from `offset` bytes on.
struct ShimPart {
  uint32_t descriptor = 0;
  uint32_t argument = 0;
  uint32_t offset = 0;
  ShimTransfer transfer;
};

// Writes the descriptors of `parts`, each followed by the next one, and starts them as a task of
// `channel`, as often as their num_repeats says.  `with_token`: leaves a token for a later Sync, in a
// channel whose tokens RouteTokens has routed.
// INVALID_ARGUMENT: EncodeShimTransfer, no parts, or parts whose num_repeats differ.
absl::Status StartShimTask(const ShimChannel& channel, std::span<const ShimPart> parts,
                           bool with_token, Transaction& transaction);

// Names the controller that a channel's tokens go to.  Once in a transaction, before the channel's first
// task with a token: without it a device may send the token elsewhere, and the Sync waits for ever.
void RouteTokens(const ShimChannel& channel, Transaction& transaction);

// The token of a task of one channel.
DmaToken TokenOf(const ShimChannel& channel);

}  // namespace tandem::npu
