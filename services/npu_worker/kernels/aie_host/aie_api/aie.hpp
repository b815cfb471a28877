// The part of AMD's AIE API that this project's cores use, for the host: tests run the cores' own
// source.
//
// Modelled:
//   * bfloat16 storage, float32 accumulators, products that are exact in float32
//   * rounding to bfloat16 by the core's mode, which starts as floor
//   * AIE2P's bfloat16 multiplication by block floating point
//     (AIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16): 8 elements along the inner dimension share an
//     exponent and have 8-bit mantissas in two's complement
// Not modelled: the order of additions within a matrix multiplication, and the tables behind exp2,
// inv and invsqrt. Results are representative, not bit for bit those of a core.
#pragma once

#include "host_arithmetic.hpp"  // IWYU pragma: export
#include "host_multiply.hpp"    // IWYU pragma: export
#include "host_vector.hpp"      // IWYU pragma: export
