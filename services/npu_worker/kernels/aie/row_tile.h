// Sizes of the row functions' streams and a core's parameters.  The cores' code, the array design,
// control code and the emulated array share them.
//
// A column's four cores have a row each.  Rows come and go in objects of 32 words, an object of each core
// in turn.
#pragma once

#include <stdint.h>

namespace tandem::npu {

inline constexpr unsigned kRowCores = 4;         // of a column, a row each
inline constexpr unsigned kRowObjectWords = 32;  // 32 numbers in float32, or 64 in bfloat16
inline constexpr unsigned kRowMultiple = 64;     // sizes are multiples of this
// The widest row that a norm takes: the hidden width of Gemma 3 27B.
inline constexpr unsigned kRowMaxNorm = 5376;
// The largest head that is rotated.
inline constexpr unsigned kRowMaxHead = 256;

enum class RowFunction : int32_t {
  kNorm = 0,     // bfloat16 = normed row
  kNormAdd = 1,  // float32 = second + normed row
  kRope = 2,   // bfloat16 = heads of the second, normed and turned by the first's cosines and sines
  kGeglu = 3,  // bfloat16 = gelu(gates) * ups
};

// What a core computes next: words of runtime parameters.
struct RowParameters {
  int32_t function = 0;     // RowFunction
  int32_t num_rows = 0;     // of this core
  int32_t size = 0;         // numbers of its output; kRope: of a head
  int32_t num_heads = 0;    // kRope
  float inverse_count = 0;  // 1 / numbers that a norm's mean is over: those behind them are zeros
  float epsilon = 0;
};

// Bytes of a core's buffers: a row, its weights, and two objects of each stream.
static_assert(2 * 4 * kRowMaxNorm                    // row, weights
                      + 2 * 3 * 4 * kRowObjectWords  // streams
                      + 4096                         // stack, parameters
                  <= 65536,
              "a core has 64 KiB");

}  // namespace tandem::npu
