// What the worker adds to a step for attention: services/gpu_worker/kernels/attention_step.h.
#ifndef TANDEM_ATTENTION_STEP_GLSL
#define TANDEM_ATTENTION_STEP_GLSL
#include "memory.glsl"

struct AttentionRow {
  uint position;
  uint fresh;  // rows of its sequence up to and with this one in the step; 0: not a row to decode
  uint tables[2];  // of its sequence by KvGroup, bytes from the step's start
};
AttentionRow attention_row(uint64_t rows, uint row) {
  uvec4 words = load_uvec4(rows + uint64_t(row) * kAttentionEntryBytes);
  return AttentionRow(words.x, words.y, uint[2](words.z, words.w));
}

// Up to a tile's size of rows of one sequence.
struct AttentionTile {
  uint first_row;
  uint num_rows;  // 0: not there
  uint picture_first, picture_last;  // positions of the rows' picture; none: the highest, and 0
};
AttentionTile attention_tile(uint64_t tiles, uint tile) {
  uvec4 words = load_uvec4(tiles + uint64_t(tile) * kAttentionEntryBytes);
  return AttentionTile(words.x, words.y, words.z, words.w);
}

// What the tile's row at `position` sees: [first_seen, last_seen].  Later rows see as late or later.
// `window` 0: none.
uint first_seen(AttentionTile tile, uint position, uint window) {
  uint first = window != 0 && position + 1 > window ? position + 1 - window : 0;
  return min(first, tile.picture_first);
}
uint last_seen(AttentionTile tile, uint position) { return max(position, tile.picture_last); }
#endif
