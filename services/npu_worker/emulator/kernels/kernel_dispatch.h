// From a decoded command to the kernel it runs.
#pragma once

#include "absl/status/status.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/ert_packet.h"
#include "services/npu_worker/emulator/fault_injection.h"
#include "services/npu_worker/emulator/kernels/parallel_for.h"

namespace tandem::npu::emulator {

// Single-thread: the executor's.
class KernelDispatcher {
 public:
  explicit KernelDispatcher(Faults faults) : faults_(faults) {}

  // Any error names what the command got wrong; nothing outside its buffers is ever touched.
  absl::Status Run(const Invocation& invocation, const AddressSpace::View& view);

 private:
  const Faults faults_;
  ParallelFor parallel_for_;
};

}  // namespace tandem::npu::emulator
