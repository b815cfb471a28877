// The attention's array: control/attention.h says what its channels carry, kernels/README.md how a
// device is configured for it.
#pragma once

#include <vector>

#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/emulator/array/cores_design.h"
#include "services/npu_worker/emulator/array/streams.h"

namespace tandem::npu::emulator {

class AttentionDesign : public CoresDesign {
 public:
  // REQUIRES heads of 64, 128 or 256.  `fabric`: borrowed, must outlive this.
  AttentionDesign(uint32_t head_dim, const ArrayShape& shape, Fabric& fabric);

 private:
  class Core;

  // Of each column.
  std::vector<Deal> queries_;
  std::vector<Broadcast> cache_;
};

}  // namespace tandem::npu::emulator
