#include "services/npu_worker/control/core_parameters.h"

#include "services/common/base/check.h"

namespace tandem::npu {

void SetParameters(Tile core, std::span<const uint32_t> words, Transaction& transaction,
                   const ParameterPlace& place) {
  TANDEM_CHECK(!words.empty() && words.size() <= kMaxParameters);
  transaction.BlockWrite(TileAddress(core, place.address), words);
  transaction.Write(CoreLockAddress(core, place.lock), 1);
}

}  // namespace tandem::npu
