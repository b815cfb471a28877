#include "services/npu_worker/emulator/ert_packet.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {
namespace {

constexpr size_t kFixedBytes = 0x14;
constexpr size_t kNpuBytes = 0x10;        // before properties
constexpr size_t kChainHandles = 7;       // words before a chain's handles
constexpr uint64_t kChainSlotBytes = 52;  // of the amdxdna driver, before a command's arguments

uint32_t CountOf(uint32_t header) { return (header >> 12) & 0x7FFu; }
bool IsStart(uint32_t header) {
  return OpcodeOf(header) == PacketOpcode::kStart || OpcodeOf(header) == PacketOpcode::kStartNpu;
}
uint32_t NumMasksOf(uint32_t header) { return 1 + ((header >> 10) & 3u); }

}  // namespace

PacketOpcode OpcodeOf(uint32_t header) { return static_cast<PacketOpcode>((header >> 23) & 0x1Fu); }

void SetState(uint32_t* header, CommandState state) {
  const uint32_t word = (*header & ~0xFu) | static_cast<uint32_t>(state);
  std::atomic_ref<uint32_t>(*header).store(word, std::memory_order_release);
}

absl::StatusOr<Invocation> DecodeStart(std::span<const uint32_t> words) {
  if (words.empty()) return absl::InvalidArgumentError("command: empty buffer");
  const uint32_t header = words[0];
  if (!IsStart(header)) {
    return absl::InvalidArgumentError(absl::StrFormat("command: packet opcode %d is not known",
                                                      static_cast<int>(OpcodeOf(header))));
  }
  const uint32_t count = CountOf(header);
  const uint32_t num_masks = NumMasksOf(header);
  if (count + size_t{1} > words.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("command: %d words in a buffer of %d", count + 1, words.size()));
  }
  const size_t register_bytes = count > num_masks ? size_t{4} * (count - num_masks) : 0;
  if (register_bytes < kFixedBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "command: %d bytes of arguments, a run has at least %d", register_bytes, kFixedBytes));
  }
  const auto* registers = reinterpret_cast<const unsigned char*>(words.data() + 1 + num_masks);
  Invocation invocation;
  const auto masks = words.subspan(1, num_masks);
  const auto mask = std::ranges::find_if(masks, [](uint32_t bits) { return bits != 0; });
  if (mask == masks.end()) return absl::InvalidArgumentError("command: names no CU");
  invocation.cu = static_cast<uint32_t>(32 * (mask - masks.begin()) + std::countr_zero(*mask));
  if (OpcodeOf(header) == PacketOpcode::kStartNpu) {
    uint32_t num_bytes = 0, num_properties = 0;
    std::memcpy(&invocation.instruction_address, registers, 8);
    std::memcpy(&num_bytes, registers + 0x08, 4);
    std::memcpy(&num_properties, registers + 0x0C, 4);
    const uint64_t at = kNpuBytes + uint64_t{4} * num_properties;
    if (at + 8 > register_bytes || num_bytes % 4 != 0) {
      return absl::InvalidArgumentError(
          absl::StrFormat("command: %d properties in %d bytes, and %d bytes of instructions",
                          num_properties, register_bytes, num_bytes));
    }
    std::memcpy(&invocation.opcode, registers + at, 8);
    invocation.num_instruction_words = num_bytes / 4;
    invocation.has_addresses = true;
    return invocation;
  }
  std::memcpy(&invocation.opcode, registers, 8);
  std::memcpy(&invocation.instruction_address, registers + 0x08, 8);
  std::memcpy(&invocation.num_instruction_words, registers + 0x10, 4);
  invocation.num_buffers =
      static_cast<int>(std::min<size_t>((register_bytes - kFixedBytes) / 8, kMaxDataBuffers));
  std::memcpy(invocation.buffers.data(), registers + kFixedBytes, 8u * invocation.num_buffers);
  return invocation;
}

absl::StatusOr<std::vector<uint32_t>> DecodeChain(std::span<const uint32_t> words) {
  if (words.size() < kChainHandles || OpcodeOf(words[0]) != PacketOpcode::kChain) {
    return absl::InvalidArgumentError("chain: not a chain packet");
  }
  const uint64_t num_commands = words[1];
  const uint64_t num_words = kChainHandles + 2 * num_commands;
  if (num_commands == 0 || num_words > CountOf(words[0]) + uint64_t{1} ||
      num_words > words.size()) {
    return absl::InvalidArgumentError(absl::StrFormat("chain: %d commands in a packet of %d words",
                                                      num_commands, CountOf(words[0]) + 1));
  }
  std::vector<uint32_t> handles(num_commands);
  for (uint64_t i = 0; i < num_commands; ++i) handles[i] = words[kChainHandles + 2 * i];
  return handles;
}

void SetChainIndex(uint32_t* header, uint32_t index, bool failed) {
  header[2] = index;
  if (failed) header[3] = index;
}

uint64_t ChainSlotBytes(std::span<const uint32_t> words) {
  if (words.empty() || !IsStart(words[0])) return 0;
  const uint64_t bytes = uint64_t{4} * CountOf(words[0]);
  // Instructions and their properties have places of their own in a slot.
  const uint64_t fixed = uint64_t{4} * NumMasksOf(words[0]) +
                         (OpcodeOf(words[0]) == PacketOpcode::kStartNpu ? kNpuBytes : 0);
  return bytes <= fixed ? 0 : kChainSlotBytes + bytes - fixed;
}

}  // namespace tandem::npu::emulator
