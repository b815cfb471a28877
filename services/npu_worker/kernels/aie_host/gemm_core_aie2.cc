#define TANDEM_CORE_FUNCTION static
#include "services/npu_worker/kernels/aie/gemm.cc"
#include "services/npu_worker/kernels/aie_host/gemm_cores.h"
// After the two.
#include "services/npu_worker/kernels/aie_host/gemm_core.inc"

namespace tandem::npu {

const GemmCore kGemmCoreAie2 = kCore;

}  // namespace tandem::npu
