// Sizes of the attention's tiles and a core's parameters.  The cores' code, the array design,
// control code and the emulated array share them.
//
//   output[i] = sum_j softmax_j(scale * q[i] . k[j]) v[j],  first <= j <= position of i
//   with first = 0 without a window, else position - window + 1 where that is not negative
//
// Queries of a picture also see from picture_first on, and up to picture_last.
//
// A core has 16 queries of one head and sees their keys and values 32 positions at a time.
#pragma once

#include <stdint.h>

namespace tandem::npu {

inline constexpr unsigned kAttentionQueries = 16;  // of a core
inline constexpr unsigned kAttentionKeys = 32;     // positions of a tile
inline constexpr unsigned kAttentionCores = 4;     // of a column, which share keys and values
inline constexpr unsigned kAttentionMaxHeadDim = 256;

// What a core computes next: words of runtime parameters.
struct AttentionParameters {
  int32_t first_position = 0;  // of the core's first query; the others follow it
  int32_t first_key = 0;       // position of the first tile's first key
  int32_t num_tiles = 0;
  int32_t num_keys = 0;                // keys from this position on do not exist
  int32_t window = 0;                  // 0: none
  float scale = 0;                     // times log2(e)
  int32_t picture_first = 0x7FFFFFFF;  // none
  int32_t picture_last = -1;
};

// A core's running softmax, for each query.
struct AttentionState {
  float maxima[kAttentionQueries];
  float sums[kAttentionQueries];
  float corrections[kAttentionQueries];  // what the last tile makes of older sums: a factor
};

// Bytes of a core's buffers, of the largest heads.  Keys and values have one each and come in turn;
// the output leaves from where the queries came to.
static_assert(2 * kAttentionQueries * kAttentionMaxHeadDim             // queries
                      + 2 * 2 * kAttentionKeys * kAttentionMaxHeadDim  // keys, values
                      + 4 * kAttentionQueries * kAttentionMaxHeadDim   // sums
                      + (4 + 2) * kAttentionQueries * kAttentionKeys   // scores, probabilities
                      + 4096                                           // stack, parameters
                  <= 65536,
              "a core has 64 KiB");

}  // namespace tandem::npu
