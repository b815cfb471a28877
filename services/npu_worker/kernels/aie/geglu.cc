// GeGLU of a row on a core of AIE2 or AIE2P: gates through GELU (its tanh form), times ups.
//
//   output[i] = gelu(gate_up[2 i]) * gate_up[2 i + 1]
//   gelu(x)   = x / (1 + exp(-2 sqrt(2 / pi) (x + 0.044715 x^3)))
//
// gate_up: float32 [2 ffn_dim], gates and ups in turn, as the loader packs the matrix and so as its GEMM gives
// them.  output: bfloat16 [ffn_dim], for the next GEMM.  ffn_dim is a multiple of 16.
#include <aie_api/aie.hpp>

#ifndef TANDEM_CORE_FUNCTION
#define TANDEM_CORE_FUNCTION extern "C"
#endif

namespace tandem::npu {
namespace {

constexpr unsigned kGegluLanes = 16;
using GegluVector = aie::vector<float, kGegluLanes>;

GegluVector Times(const GegluVector& a, const GegluVector& b) {
  return aie::mul(a, b).to_vector<float>();
}
GegluVector Each(float value) { return aie::broadcast<float, kGegluLanes>(value); }

// Beyond +-kFlat a gate is itself or zero to float32's precision, and its cube would leave the exponent's
// range.
constexpr float kFlat = 8.0f;

GegluVector Gelu(const GegluVector& x) {
  // -2 sqrt(2 / pi) log2(e)
  constexpr float kFactor = -2.302208198f;
  const auto is_low = aie::lt(x, Each(-kFlat));
  const GegluVector above = aie::select(x, Each(-kFlat), is_low);
  const GegluVector near = aie::select(above, Each(kFlat), aie::lt(Each(kFlat), above));
  const GegluVector cube = Times(Times(near, near), near);
  const GegluVector inner = aie::add(near, Times(cube, Each(0.044715f)));
  const auto power = aie::exp2<bfloat16>(Times(inner, Each(kFactor)));
  const GegluVector below =
      aie::add(aie::accum<accfloat, kGegluLanes>(power).to_vector<float>(), Each(1.0f));
  return aie::select(Times(x, aie::inv(below)), Each(0.0f), is_low);
}

}  // namespace
}  // namespace tandem::npu

TANDEM_CORE_FUNCTION void geglu_row(const float* gate_up, unsigned ffn_dim, bfloat16* output) {
  using namespace tandem::npu;
  aie::set_rounding(aie::rounding_mode::conv_even);
  for (unsigned i = 0; i < ffn_dim; i += kGegluLanes) {
    const auto pairs = aie::load_v<2 * kGegluLanes>(gate_up + 2 * i);
    const GegluVector gelu = Gelu(aie::filter_even(pairs));
    aie::store_v(output + i, aie::mul(gelu, aie::filter_odd(pairs)).template to_vector<bfloat16>());
  }
}
