// RMSNorm of a row on a core of AIE2 or AIE2P: float32 in, what the next operator takes out.
//
//   factor    = 1 / sqrt(sum(row^2) * inverse_count + epsilon)
//   normed[i] = row[i] * factor * weights[i]
//
// The factor is of a whole row; then a part of it at a time is normed, so that the output is as long as a
// stream's object.  Weights hold 1 + w, as the loader packs norms.  Sizes are multiples of 16.  float32
// products are made of several bfloat16 ones by the core; sums are kept in float32.
#include "services/npu_worker/kernels/aie/row_norm.h"

#ifndef TANDEM_CORE_FUNCTION
#define TANDEM_CORE_FUNCTION extern "C"
#endif

// `inverse_count`: 1 / numbers of the row; numbers behind them are zeros.
TANDEM_CORE_FUNCTION float norm_factor(const float* row, unsigned size, float inverse_count,
                                       float epsilon) {
  using namespace tandem::npu;
  aie::set_rounding(aie::rounding_mode::conv_even);
  return NormFactor(row, size, inverse_count, epsilon);
}

// Before a GEMM: bfloat16.
TANDEM_CORE_FUNCTION void norm_part(const float* row, const float* weights, unsigned size,
                                    float factor, bfloat16* output) {
  using namespace tandem::npu;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned i = 0; i < size; i += kNormLanes) {
    aie::store_v(output + i, Normed(row + i, weights + i, factor).template to_vector<bfloat16>());
  }
}

// Behind a GEMM: residual += normed row.
TANDEM_CORE_FUNCTION void norm_add_part(const float* row, const float* weights, unsigned size,
                                        float factor, float* residual) {
  using namespace tandem::npu;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned i = 0; i < size; i += kNormLanes) {
    const NormVector normed = Normed(row + i, weights + i, factor).template to_vector<float>();
    aie::store_v(residual + i, aie::add(aie::load_v<kNormLanes>(residual + i), normed));
  }
}
