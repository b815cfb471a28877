// How the GEMM's weights come to a core: pieces of a ring, as long as the shortest object of the stream.
#pragma once

#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {

struct GemmRing {
  unsigned piece_bytes = 0;
  unsigned num_pieces = 0;     // of a core's buffer
  unsigned weight_pieces = 0;  // of 64 inputs
  unsigned scale_pieces = 0;   // of 256 inputs
};

inline constexpr GemmRing kGemmRingQ8 = {kGemmScaleBytes, 10, kGemmQ8Bytes / kGemmScaleBytes, 1};
inline constexpr GemmRing kGemmRingQ4 = {kGemmScaleBytes, 6, kGemmQ4Bytes / kGemmScaleBytes, 1};
inline constexpr GemmRing kGemmRingBf16 = {kGemmBf16Bytes, 2, 1, 0};

#if defined(TANDEM_GEMM_FORMAT) && TANDEM_GEMM_FORMAT == 80
inline constexpr GemmRing kGemmRing = kGemmRingQ8;
#elif defined(TANDEM_GEMM_FORMAT) && TANDEM_GEMM_FORMAT == 40
inline constexpr GemmRing kGemmRing = kGemmRingQ4;
#elif defined(TANDEM_GEMM_FORMAT)
inline constexpr GemmRing kGemmRing = kGemmRingBf16;
#endif

// A core's buffers: gemm_tile.h counts two objects of each kind; the gathered weights come on top.
static_assert(2 * kGemmActivationBytes + kGemmRingQ8.piece_bytes * kGemmRingQ8.num_pieces +
                      kGemmQ8Bytes                      // gathered
                      + kGemmScaleBytes                 // converted scales
                      + kGemmInputs * kGemmOutputs * 2  // dequantised weights
                      + kGemmSumBytes + 4096            // stack, parameters
                  <= 65536,
              "a core has 64 KiB");

}  // namespace tandem::npu
