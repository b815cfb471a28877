#define TANDEM_CORE_FUNCTION static
#include "services/npu_worker/kernels/aie/geglu.cc"
#include "services/npu_worker/kernels/aie/norm.cc"
#include "services/npu_worker/kernels/aie/rope.cc"
#include "services/npu_worker/kernels/aie_host/row_cores.h"

namespace tandem::npu {

const RowCore kRowCore = {
    .norm = norm_row, .norm_add = norm_add_row, .rope = rope_head, .geglu = geglu_row};

}  // namespace tandem::npu
