// RMSNorm of a row on a core of AIE2 or AIE2P: float32 in, what the next operator takes out.
//
//   normed[i] = row[i] / sqrt(mean(row^2) + epsilon) * weights[i]
//
// Weights hold 1 + w, as the loader packs norms.  A size is a multiple of 16.  float32 products are made of
// several bfloat16 ones by the core; sums are kept in float32.
#include "services/npu_worker/kernels/aie/row_norm.h"

#ifndef TANDEM_CORE_FUNCTION
#define TANDEM_CORE_FUNCTION extern "C"
#endif

// Before a GEMM: bfloat16.
TANDEM_CORE_FUNCTION void norm_row(const float* row, const float* weights, unsigned size,
                                   float epsilon, bfloat16* output) {
  using namespace tandem::npu;
  aie::set_rounding(aie::rounding_mode::conv_even);
  const float factor = NormFactor(row, size, epsilon);
  for (unsigned i = 0; i < size; i += kNormLanes) {
    aie::store_v(output + i, Normed(row + i, weights + i, factor).template to_vector<bfloat16>());
  }
}

// Behind a GEMM: residual += normed row.
TANDEM_CORE_FUNCTION void norm_add_row(const float* row, const float* weights, unsigned size,
                                       float epsilon, float* residual) {
  using namespace tandem::npu;
  aie::set_rounding(aie::rounding_mode::conv_even);
  const float factor = NormFactor(row, size, epsilon);
  for (unsigned i = 0; i < size; i += kNormLanes) {
    const NormVector normed = Normed(row + i, weights + i, factor).template to_vector<float>();
    aie::store_v(residual + i, aie::add(aie::load_v<kNormLanes>(residual + i), normed));
  }
}
