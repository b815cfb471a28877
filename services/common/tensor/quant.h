// Rows of weights, number by number: quantised and dequantised in both layouts they occur in.
//
// *File layout*: as in GGUF files.  A row is a sequence of blocks, little-endian:
//
//   q8_0  f16 d, int8 q[32]                                  x[e] = d * q[e]
//   q4_0  f16 d, uint8 b[16]                                 x[e] = d * (q[e] - 8)
//         q[e] = low nibble of b[e] for e < 16, high nibble of b[e - 16] for the others
//   iq4_nl  the same                                         x[e] = d * table[q[e]]
//         table: iq4_nl_values.inc
//   q5_0  f16 d, uint32 h, uint8 b[16]                       x[e] = d * (q[e] - 16)
//         q[e] = nibble of b as for q4_0 | bit e of h << 4
//   q4_k  f16 d, f16 dmin, uint8 p[12], uint8 b[128]         x[e] = d * s[r] * q[e] - dmin * m[r]
//         with r = e / 32, l = e % 32: q[e] = nibble r % 2 of b[32 (r / 2) + l]; for i < 4
//         s[i] = low 6 bits of p[i], s[4 + i] = low nibble of p[8 + i] | high 2 bits of p[i] << 4,
//         m[i] = low 6 bits of p[4 + i],
//         m[4 + i] = high nibble of p[8 + i] | high 2 bits of p[4 + i] << 4
//   q5_k  f16 d, f16 dmin, uint8 p[12], uint8 h[32], uint8 b[128]
//         as q4_k, and bit r of h[l] << 4
//   q6_k  uint8 low[128], uint8 high[64], int8 s[16], f16 d  x[e] = d * s[e / 16] * (q[e] - 32)
//         with e = 128 h + 32 g + l (h < 2, g < 4, l < 32):
//         q[e] = nibble g / 2 of low[64 h + 32 (g % 2) + l] | bits 2g, 2g+1 of high[32 h + l] << 4
//
// *Packed layout*: pieces in planes, as in weights/packed_tensor.h; a row is one address per plane.
//
// Source: ggml's quantisation layouts (block_q8_0, block_q4_0, block_iq4_nl, block_q5_0,
// block_q4_K, block_q5_K, block_q6_K).
// This is the plain arithmetic that kernels and packing are tested against, and what tools that
// are in no hurry use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/tensor/dtype.h"
#include "services/common/tensor/packed_row.h"

namespace tandem {

// Writes the row's numbers to `out` in float32, in the order of the formulas above: products from
// the left, then the difference.  Products are exact (d has 11 bits, s and m at most 8, q at most
// 6); so every number is exact but q4_k's and q5_k's, whose difference is rounded once.  That
// leaves no room for other orders: fused or not, these are the bits that ggml computes. REQUIRES
// out.size() is a multiple of the format's block, `row` holds RowBytes(dtype, out.size()).
void DequantizeFileRow(DType dtype, std::span<const std::byte> row, std::span<float> out);
void DequantizePackedRow(DType dtype, const PackedRow& row, std::span<float> out);

// Writes `values` in `dtype`, each rounded to the nearest number its block's scale offers.  Scales
// come from the block's largest magnitude; there is no search for better ones.  What a packed row's
// last pieces hold beyond its end becomes zero.
// REQUIRES as above; values finite.
void QuantizeFileRow(DType dtype, std::span<const float> values, std::span<std::byte> row);
void QuantizePackedRow(DType dtype, std::span<const float> values, const MutablePackedRow& row);

// File layout to packed layout without touching a number; the last pieces' rest becomes zero.
void RepackRow(DType dtype, std::span<const std::byte> file_row, size_t num_elements,
               const MutablePackedRow& row);

// The same, element by element: what RepackRow does for formats without a faster way, and what its
// faster ways are tested against.  REQUIRES a format of blocks.
void RepackRowByElement(DType dtype, std::span<const std::byte> file_row, size_t num_elements,
                        const MutablePackedRow& row);

}  // namespace tandem
