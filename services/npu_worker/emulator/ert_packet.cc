#include "services/npu_worker/emulator/ert_packet.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {
namespace {

constexpr size_t kFixedBytes = 0x14;

uint32_t CountOf(uint32_t header) { return (header >> 12) & 0x7FFu; }
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
  if (OpcodeOf(header) != PacketOpcode::kStart) {
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
  std::memcpy(&invocation.opcode, registers, 8);
  std::memcpy(&invocation.instruction_address, registers + 0x08, 8);
  std::memcpy(&invocation.num_instruction_words, registers + 0x10, 4);
  invocation.num_buffers =
      static_cast<int>(std::min<size_t>((register_bytes - kFixedBytes) / 8, kMaxDataBuffers));
  std::memcpy(invocation.buffers.data(), registers + kFixedBytes, 8u * invocation.num_buffers);
  return invocation;
}

}  // namespace tandem::npu::emulator
