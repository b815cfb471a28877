// Sizes of the GEMM's tiles.  The cores' code, the array design, control code and the emulated
// array share them.
//
//   output[r, n] = sum_k activations[r, k] * weights[n, k]
//
// A core computes 64 rows x 64 outputs at a time.  Its inputs come 64 at a time; the weights'
// scales for 256.
#pragma once

namespace tandem::npu {

inline constexpr unsigned kGemmRows = 64;     // of activations, in a tile
inline constexpr unsigned kGemmOutputs = 64;  // rows of the weight matrix, in a tile
inline constexpr unsigned kGemmInputs = 64;   // columns of both, in a tile
inline constexpr unsigned kGemmChunk = 256;   // columns whose scales come together
inline constexpr unsigned kGemmBlock = 8;  // tiles are cut into blocks of 8 x 8 for the matrix unit
inline constexpr unsigned kGemmCoreRows = 4;  // cores of a column, each with rows of its own

// Bytes of a core's buffers.  Activations, weights and scales have two each: one fills while the
// core reads the other.
inline constexpr unsigned kGemmActivationBytes = kGemmRows * kGemmInputs * 2;
inline constexpr unsigned kGemmScaleBytes = kGemmOutputs * kGemmChunk / 32 * 2;
inline constexpr unsigned kGemmQ8Bytes = kGemmOutputs * kGemmInputs;
inline constexpr unsigned kGemmQ4Bytes = kGemmOutputs * kGemmInputs / 2;
inline constexpr unsigned kGemmBf16Bytes = kGemmOutputs * kGemmInputs * 2;
inline constexpr unsigned kGemmSumBytes = kGemmRows * kGemmOutputs * 4;
static_assert(2 * (kGemmActivationBytes + kGemmQ8Bytes + kGemmScaleBytes)  // as they come
                      + kGemmScaleBytes                                    // converted scales
                      + kGemmInputs * kGemmOutputs * 2                     // dequantised weights
                      + kGemmSumBytes + 4096                               // stack, parameters
                  <= 65536,
              "a core has 64 KiB");
static_assert(2 * (kGemmActivationBytes + kGemmBf16Bytes) + kGemmSumBytes + 4096 <= 65536,
              "a core has 64 KiB");

}  // namespace tandem::npu
