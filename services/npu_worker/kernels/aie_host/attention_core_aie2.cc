#include "services/npu_worker/kernels/aie/attention.cc"
#include "services/npu_worker/kernels/aie_host/attention_cores.h"
// After the two.
#include "services/npu_worker/kernels/aie_host/attention_core.inc"

namespace tandem::npu {

const AttentionCore* AttentionCoreAie2(uint32_t head_dim) { return CoreOf(head_dim); }

}  // namespace tandem::npu
