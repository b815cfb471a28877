// As scripts that build for AIE2P define it: bfloat16 is multiplied by block floating point.
#define AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16
#define TANDEM_CORE_FUNCTION static
#include "services/npu_worker/kernels/aie/gemm.cc"
#include "services/npu_worker/kernels/aie_host/gemm_cores.h"
// After the two.
#include "services/npu_worker/kernels/aie_host/gemm_core.inc"

namespace tandem::npu {

const GemmCore kGemmCoreAie2p = kCore;

}  // namespace tandem::npu
