// The GEMM's array: control/gemm.h says what its channels carry, kernels/README.md how a device is
// configured for it.
#pragma once

#include <vector>

#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/emulator/array/cores_design.h"
#include "services/npu_worker/emulator/array/streams.h"

namespace tandem::npu::emulator {

enum class GemmFormat { kQ8_0, kQ4_0, kBf16 };

class GemmDesign : public CoresDesign {
 public:
  // REQUIRES at least 4 columns.  `fabric`: borrowed, must outlive this.
  GemmDesign(GemmFormat format, const ArrayShape& shape, Fabric& fabric);

 private:
  class Core;

  std::vector<Broadcast> activations_;  // of each core row
  std::vector<Broadcast> weights_;      // of each column
};

}  // namespace tandem::npu::emulator
