// As scripts that build for AIE2P define it: bfloat16 is multiplied by block floating point.
#define AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16
#include "services/npu_worker/kernels/aie/attention.cc"
#include "services/npu_worker/kernels/aie_host/attention_cores.h"
// After the two.
#include "services/npu_worker/kernels/aie_host/attention_core.inc"

namespace tandem::npu {

const AttentionCore* AttentionCoreAie2p(uint32_t head_dim) { return CoreOf(head_dim); }

}  // namespace tandem::npu
