#include "services/npu_worker/emulator/kernels/kernel_dispatch.h"

#include <array>
#include <cstring>
#include <span>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/kernel_abi.h"
#include "services/npu_worker/emulator/kernels/attend.h"
#include "services/npu_worker/emulator/kernels/instructions.h"
#include "services/npu_worker/emulator/kernels/out.h"

namespace tandem::npu::emulator {
namespace {

template <typename T>
absl::StatusOr<T> Read(std::span<const std::byte> buffer, const char* what) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (buffer.size() < sizeof(T)) {
    return absl::OutOfRangeError(
        absl::StrFormat("%s: %d bytes in a buffer of %d", what, sizeof(T), buffer.size()));
  }
  T value;
  std::memcpy(&value, buffer.data(), sizeof(T));
  return value;
}

absl::StatusOr<Instructions> ReadInstructions(const Invocation& invocation,
                                              const AddressSpace::View& view) {
  if (invocation.opcode != kRunOpcode) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run: opcode %d, must be %d", invocation.opcode, kRunOpcode));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto buffer, view.Buffer(invocation.instruction_address));
  TANDEM_ASSIGN_OR_RETURN(const auto instructions, Read<Instructions>(buffer, "instructions"));
  if (invocation.num_instruction_words != kNumInstructionWords ||
      instructions.magic != kInstructionMagic || instructions.version != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run: %d instruction words of kind %#x are not of this NPU's package",
                        invocation.num_instruction_words, instructions.magic));
  }
  return instructions;
}

void Damage(const Faults& faults, std::span<std::byte> output, size_t value_bytes,
            std::span<std::byte> exchange) {
  if (faults.wrong_answer && output.size() >= value_bytes) {
    output[value_bytes - 1] ^= std::byte{0x40};
  }
  const size_t end = static_cast<size_t>(output.data() - exchange.data()) + output.size();
  if (faults.overrun && end < exchange.size()) exchange[end] ^= std::byte{0xFF};
}

}  // namespace

absl::Status KernelDispatcher::Run(const Invocation& invocation, const AddressSpace::View& view) {
  TANDEM_ASSIGN_OR_RETURN(const Instructions instructions, ReadInstructions(invocation, view));
  if (invocation.num_buffers < kNumDataBuffers) {
    return absl::InvalidArgumentError(absl::StrFormat("run: %d data buffers, expected %d",
                                                      invocation.num_buffers, kNumDataBuffers));
  }
  std::array<std::span<std::byte>, kNumDataBuffers> buffers;
  for (int i = 0; i < kNumDataBuffers; ++i) {
    TANDEM_ASSIGN_OR_RETURN(buffers[i], view.Buffer(invocation.buffers[i]));
  }
  const std::span<std::byte> exchange = buffers[kExchangeBuffer];
  TANDEM_ASSIGN_OR_RETURN(const StepView step, ReadStep(buffers[kStepBuffer]));
  switch (instructions.kind) {
    case KernelKind::kAttend: {
      TANDEM_ASSIGN_OR_RETURN(const auto layer,
                              Read<AttendParameters>(buffers[kLayerBuffer], "layer"));
      if (layer.head_dim != instructions.head_dim ||
          step.header.num_positions > instructions.max_positions) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "attend: made for head_dim %d and %d positions, given %d and %d", instructions.head_dim,
            instructions.max_positions, layer.head_dim, step.header.num_positions));
      }
      TANDEM_ASSIGN_OR_RETURN(const auto output,
                              Attend(step, layer, exchange, buffers[kKvBuffer], parallel_for_));
      Damage(faults_, output, sizeof(uint16_t), exchange);
      return absl::OkStatus();
    }
    case KernelKind::kOut: {
      TANDEM_ASSIGN_OR_RETURN(const auto layer,
                              Read<OutParameters>(buffers[kLayerBuffer], "layer"));
      if (layer.weight_dtype != instructions.weight_dtype) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "out: made for format %d, given %d", instructions.weight_dtype, layer.weight_dtype));
      }
      TANDEM_ASSIGN_OR_RETURN(const auto output, Out(step.header.num_rows, layer, exchange,
                                                     buffers[kWeightBuffer], parallel_for_));
      Damage(faults_, output, sizeof(float), exchange);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("run: kernel kind %d", static_cast<uint32_t>(instructions.kind)));
}

}  // namespace tandem::npu::emulator
