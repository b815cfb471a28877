// The attention's array: control/attention.h says what its channels carry, kernels/README.md how a
// device is configured for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/emulator/array/design.h"
#include "services/npu_worker/emulator/array/streams.h"

namespace tandem::npu::emulator {

class AttentionDesign : public Design {
 public:
  // REQUIRES heads of 64, 128 or 256.  `fabric`: borrowed, must outlive this.
  AttentionDesign(uint32_t head_dim, const ArrayShape& shape, Fabric& fabric);
  ~AttentionDesign() override;

  bool Advance() override;
  std::string Waiting() const override;

 private:
  class Core;

  // Of each column.
  std::vector<Deal> queries_;
  std::vector<Broadcast> cache_;
  std::vector<Join> outputs_;
  std::vector<std::unique_ptr<Core>> cores_;
};

}  // namespace tandem::npu::emulator
