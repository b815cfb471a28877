// The norm and rotation of a query's or key's head on a core of AIE2 or AIE2P.
//
//   normed  = RMSNorm(head)
//   output[i]                = normed[i] * cosines[i] - normed[i + head_dim / 2] * sines[i]
//   output[i + head_dim / 2] = normed[i] * sines[i] + normed[i + head_dim / 2] * cosines[i]
//
// head: float32 [head_dim], a multiple of 32, as the GEMM gives it.  cosines, sines: float32 [head_dim / 2],
// of the row's position; the host makes them, because a core has neither table nor range reduction for
// positions in the thousands.  output: bfloat16 [head_dim], for attention.
#include "services/npu_worker/kernels/aie/row_norm.h"

#ifndef TANDEM_CORE_FUNCTION
#define TANDEM_CORE_FUNCTION extern "C"
#endif

TANDEM_CORE_FUNCTION void rope_head(const float* head, const float* weights, const float* cosines,
                                    const float* sines, unsigned head_dim, float epsilon,
                                    bfloat16* output) {
  using namespace tandem::npu;
  aie::set_rounding(aie::rounding_mode::conv_even);
  const float factor = NormFactor(head, head_dim, aie::inv(static_cast<float>(head_dim)), epsilon);
  const unsigned half = head_dim / 2;
  for (unsigned i = 0; i < half; i += kNormLanes) {
    const NormVector low = Normed(head + i, weights + i, factor).template to_vector<float>();
    const NormVector high =
        Normed(head + half + i, weights + half + i, factor).template to_vector<float>();
    const NormVector cosine = aie::load_v<kNormLanes>(cosines + i);
    const NormVector sine = aie::load_v<kNormLanes>(sines + i);
    const NormVector turned_low = aie::sub(aie::mul(low, cosine).template to_vector<float>(),
                                           aie::mul(high, sine).template to_vector<float>());
    const NormVector turned_high = aie::add(aie::mul(low, sine).template to_vector<float>(),
                                            aie::mul(high, cosine).template to_vector<float>());
    using Sums = aie::accum<accfloat, kNormLanes>;
    aie::store_v(output + i, Sums(turned_low).template to_vector<bfloat16>());
    aie::store_v(output + half + i, Sums(turned_high).template to_vector<bfloat16>());
  }
}
