// The array of the row functions: control/rows.h says what its channels carry, kernels/README.md how a
// device is configured for it.
#pragma once

#include <vector>

#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/emulator/array/cores_design.h"
#include "services/npu_worker/emulator/array/streams.h"

namespace tandem::npu::emulator {

class RowDesign : public CoresDesign {
 public:
  // `fabric`: borrowed, must outlive this.
  RowDesign(const ArrayShape& shape, Fabric& fabric);

 private:
  class Core;

  std::vector<Deal> rows_;          // of each column
  std::vector<Broadcast> weights_;  // of each column
};

}  // namespace tandem::npu::emulator
