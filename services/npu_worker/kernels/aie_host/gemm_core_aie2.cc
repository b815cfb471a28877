#define TANDEM_CORE_FUNCTION static
#include "services/npu_worker/kernels/aie/gemm.cc"
#include "services/npu_worker/kernels/aie_host/gemm_cores.h"

namespace tandem::npu {

const GemmCore kGemmCoreAie2 = {.start = gemm_start,
                                .clear = gemm_clear,
                                .scales = gemm_scales,
                                .dequantise_q8_0 = gemm_dequantise_q8_0,
                                .dequantise_q4_0 = gemm_dequantise_q4_0,
                                .multiply = gemm_multiply};

}  // namespace tandem::npu
