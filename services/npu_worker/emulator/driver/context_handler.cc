#include "services/npu_worker/emulator/driver/context_handler.h"

#include <memory>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/emulator/array/emulated_array.h"
#include "services/npu_worker/emulator/kernels/kernel_dispatch.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint64_t kRunOpcode = 3;  // mlir-aie's: run an instruction sequence

absl::Status RunControlCode(EmulatedArray& array, const Invocation& invocation,
                            const AddressSpace::View& view) {
  if (invocation.opcode != kRunOpcode) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run: opcode %d, must be %d", invocation.opcode, kRunOpcode));
  }
  TANDEM_ASSIGN_OR_RETURN(const auto buffer, view.Buffer(invocation.instruction_address));
  TANDEM_ASSIGN_OR_RETURN(
      const auto code,
      Within(buffer, 0, uint64_t{invocation.num_instruction_words} * 4, "instructions"));
  if (reinterpret_cast<uintptr_t>(code.data()) % alignof(uint32_t) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("run: instructions at address %#x", invocation.instruction_address));
  }
  return array.Run({reinterpret_cast<const uint32_t*>(code.data()), code.size() / 4},
                   std::span(invocation.buffers).first(invocation.num_buffers), view);
}

}  // namespace

CommandHandler MakeContextHandler(std::span<const std::byte> configuration, const ArrayShape& shape,
                                  Faults faults) {
  const std::optional<std::string> name = DesignOf(configuration);
  if (!name.has_value()) {
    auto dispatcher = std::make_shared<KernelDispatcher>(faults);
    return [dispatcher](const Invocation& invocation, const AddressSpace::View& view) {
      return dispatcher->Run(invocation, view);
    };
  }
  auto design = FindDesign(*name, shape);
  if (!design.ok()) {
    return
        [status = design.status()](const Invocation&, const AddressSpace::View&) { return status; };
  }
  auto array = std::make_shared<EmulatedArray>(shape, *std::move(design), faults);
  return [array](const Invocation& invocation, const AddressSpace::View& view) {
    return RunControlCode(*array, invocation, view);
  };
}

}  // namespace tandem::npu::emulator
