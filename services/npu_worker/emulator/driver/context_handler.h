// What executes the commands of a hardware context.
#pragma once

#include <functional>

#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/emulator/driver/device.h"
#include "services/npu_worker/emulator/executor.h"
#include "services/npu_worker/emulator/fault_injection.h"

namespace tandem::npu::emulator {

// A context has an array of `shape`.  A command's CU says which configuration it needs; where that is not the
// one of the command before, it is loaded, and `on_load` called.
//
// A configuration that names a design executes control code on the array (array/); one that names an
// unknown design refuses every command, with NOT_FOUND.  Any other: the kernels of the emulated NPU's
// package.
CommandHandler MakeContextHandler(Configurations configurations, const ArrayShape& shape,
                                  Faults faults, std::function<void()> on_load);

}  // namespace tandem::npu::emulator
