// The GEMM's core functions (../aie/gemm.cc), compiled for the host.
#pragma once

#include <cstdint>

#include <aie_api/aie.hpp>

namespace tandem::npu {

struct GemmCore {
  void (*start)();
  void (*clear)(float* sums);
  void (*scales)(const uint16* halves, bfloat16* scales);
  void (*dequantise_q8_0)(const int8* weights, const bfloat16* scales, unsigned quarter,
                          bfloat16* tile);
  void (*dequantise_q4_0)(const int8* weights, const bfloat16* scales, unsigned quarter,
                          bfloat16* tile);
  // Faster on a host than gemm_multiply, with its bits.
  void (*multiply)(const bfloat16* activations, const bfloat16* weights, float* sums);
  void (*multiply_as_written)(const bfloat16* activations, const bfloat16* weights, float* sums);
};

extern const GemmCore kGemmCoreAie2;   // npu1
extern const GemmCore kGemmCoreAie2p;  // npu4: multiplies by block floating point

}  // namespace tandem::npu
