// What executes the commands of a hardware context.
#pragma once

#include <cstddef>
#include <span>

#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/emulator/executor.h"
#include "services/npu_worker/emulator/fault_injection.h"

namespace tandem::npu::emulator {

// A configuration that names a design makes an array of `shape` that executes control code
// (array/); one that names an unknown design refuses every command, with NOT_FOUND.  Any other: the
// kernels of the emulated NPU's package.
CommandHandler MakeContextHandler(std::span<const std::byte> configuration, const ArrayShape& shape,
                                  Faults faults);

}  // namespace tandem::npu::emulator
