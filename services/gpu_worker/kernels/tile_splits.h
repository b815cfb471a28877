// How the tiles of a matmul are shared among workgroups: shaders/linear/tile_splits.glsl, which the
// shader includes too.
#pragma once

#include <cstdint>

namespace tandem::gpu {

using uint = uint32_t;  // GLSL's

#define TILE_SPLITS_FUNCTION inline
#include "shaders/linear/tile_splits.glsl"
#undef TILE_SPLITS_FUNCTION

inline uint32_t NumWorkgroups(uint32_t row_tiles, uint32_t column_tiles, const TileSplits& splits) {
  return row_tiles * (splits.whole + (column_tiles - splits.whole) * splits.parts);
}

}  // namespace tandem::gpu
