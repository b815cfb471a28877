// Command packets as XRT hands them to a driver (ERT start packets), decoded with bounds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::npu::emulator {

// Packet header, word 0: state [3:0], extra CU masks [11:10], count of the words that follow
// [22:12], opcode [27:23].  Source: XRT, core/include/ert.h.
enum class CommandState : uint32_t {
  kNew = 1,
  kCompleted = 4,
  kError = 5,
  kAbort = 6,
  kTimeout = 8
};
enum class PacketOpcode : uint32_t { kStart = 0, kConfigure = 2, kChain = 19, kStartNpu = 20 };

PacketOpcode OpcodeOf(uint32_t header);
// Stores the state so that a thread that sees it sees the command's results too.
void SetState(uint32_t* header, CommandState state);

// A start packet's register map, as mlir-aie's `dpu` kernels lay it out:
//   0x00 opcode u64 | 0x08 instruction address u64 | 0x10 instruction words u32 |
//   0x14 + 8 i  address of data buffer i
// Of control code whose addresses XRT has written already (ERT_START_NPU), as XRT 2.25 sends it:
//   0x00 instruction address u64 | 0x08 bytes of it u32 | 0x0C number of properties n u32 | n words |
//   opcode u64
inline constexpr int kMaxDataBuffers = 8;
struct Invocation {
  uint32_t cu = 0;  // which kernel of the xclbin: the first one in the CU masks
  uint64_t opcode = 0;
  uint64_t instruction_address = 0;
  uint32_t num_instruction_words = 0;
  bool has_addresses = false;  // the control code, of its data buffers
  int num_buffers = 0;
  std::array<uint64_t, kMaxDataBuffers> buffers{};
};

// `words`: the command buffer from its header on.  INVALID_ARGUMENT if the packet is not a
// start packet, is longer than its buffer, is too short for a run of the kernel, names no CU, or has
// instructions of no whole words.
absl::StatusOr<Invocation> DecodeStart(std::span<const uint32_t> words);

// A chain packet: header | number of commands | index of the last submitted | index of the failed |
// 3 reserved words | a handle of a command buffer each, u64.  INVALID_ARGUMENT if the packet is not a
// chain, has no commands, or has more than its length holds.
absl::StatusOr<std::vector<uint32_t>> DecodeChain(std::span<const uint32_t> words);
// What a chain says of its progress: the command `index` was the last, and whether it failed.
void SetChainIndex(uint32_t* header, uint32_t index, bool failed);
// What a start packet takes of a chain's room: the driver's slot and the arguments.  0: no start packet.
uint64_t ChainSlotBytes(std::span<const uint32_t> words);

}  // namespace tandem::npu::emulator
