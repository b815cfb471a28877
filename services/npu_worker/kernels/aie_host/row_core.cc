#define TANDEM_CORE_FUNCTION static
#include "services/npu_worker/kernels/aie/geglu.cc"
#include "services/npu_worker/kernels/aie/norm.cc"
#include "services/npu_worker/kernels/aie/rope.cc"
#include "services/npu_worker/kernels/aie_host/row_cores.h"

namespace tandem::npu {

const RowCore kRowCore = {.norm_factor = norm_factor,
                          .norm_part = norm_part,
                          .norm_add_part = norm_add_part,
                          .rope = rope_head,
                          .geglu = geglu_row};

}  // namespace tandem::npu
