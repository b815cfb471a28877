// How the tiles of a matmul are shared among workgroups, in GLSL and in C++ (kernels/tile_splits.h).
//
// Tiles that fill the device some times are whole; in the others, without which it would be idle in
// part, k is split so that they fill it too.  The number of rows that a step has decides, not the most
// that its recording is for: a wave of workgroups takes the same time whether it is full or not.
#ifndef TANDEM_TILE_SPLITS_GLSL
#define TANDEM_TILE_SPLITS_GLSL

// Most tiles of a matmul in which k is split: each has a counter (arrivals).
const uint kMatrixMaxTiles = 4096;

struct TileSplits {
  uint whole;  // columns of tiles that are not split: the first ones
  uint parts;  // of k, of the others
};

// The fastest split-K for `tiles` workgroups on a device that runs `groups` at once, at most `most`:
// waves of workgroups for each part, and 4% of a part's time for the sum of the parts.
TILE_SPLITS_FUNCTION uint num_splits(uint groups, uint tiles, uint most) {
  if (tiles == 0 || tiles >= groups) return 1;
  uint best = 1, best_time = 26, waves = 1, slots = groups;  // times in 25ths of a part's
  // While full waves alone would be faster than the best.
  for (uint splits = 2; splits <= most && tiles * (25 + splits) * best < best_time * groups; ++splits) {
    if (tiles * splits > slots) {
      ++waves;
      slots += groups;
    }
    uint time = waves * (25 + splits);
    if (time * best < best_time * splits) {
      best = splits;
      best_time = time;
    }
  }
  return best;
}

// REQUIRES row_tiles and column_tiles > 0.  `most`: parts of k; `fit`: tiles' sums that fit the
// workspace.
TILE_SPLITS_FUNCTION TileSplits split_tiles(uint row_tiles, uint column_tiles, uint groups, uint most,
                                            uint fit) {
  uint tiles = row_tiles * column_tiles;
  TileSplits splits;
  splits.whole = tiles / groups * groups / row_tiles;
  uint rest = tiles - splits.whole * row_tiles;
  uint fitting = rest == 0 || rest > kMatrixMaxTiles ? 1 : fit / rest;
  splits.parts = num_splits(groups, tiles % groups, most < fitting ? most : fitting);
  return splits;
}
#endif
