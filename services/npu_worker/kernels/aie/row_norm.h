// RMSNorm of a row, 16 elements at a time: what the norm and the rotation of heads share.
#pragma once

#include <aie_api/aie.hpp>

namespace tandem::npu {
namespace {

constexpr unsigned kNormLanes = 16;
using NormVector = aie::vector<float, kNormLanes>;

// 1 / sqrt(sum(row^2) * inverse_count + epsilon)
float NormFactor(const float* row, unsigned size, float inverse_count, float epsilon) {
  NormVector squares = aie::zeros<float, kNormLanes>();
  for (unsigned i = 0; i < size; i += kNormLanes) {
    const NormVector values = aie::load_v<kNormLanes>(row + i);
    squares = aie::add(squares, aie::mul(values, values).to_vector<float>());
  }
  return aie::invsqrt(aie::reduce_add(squares) * inverse_count + epsilon);
}

// 16 elements of a row, normed.
aie::accum<accfloat, kNormLanes> Normed(const float* row, const float* weights, float factor) {
  const NormVector scaled =
      aie::mul(aie::load_v<kNormLanes>(row), aie::broadcast<float, kNormLanes>(factor))
          .to_vector<float>();
  return aie::mul(scaled, aie::load_v<kNormLanes>(weights));
}

}  // namespace
}  // namespace tandem::npu
