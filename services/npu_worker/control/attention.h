// Control code of attention over a prompt's rows: consecutive rows of one sequence, in one layer.
//
//   output[r, h] = sum_j softmax_j(scale * q[r, h] . k[j, g]) v[j, g],  first <= j <= position of r
//   g = h / (num_heads / num_kv_heads)
//   first = 0 without a window, else max(0, position + 1 - window)
//
//   queries, output  bfloat16 [rows, num_heads, head_dim]; queries are read up to a multiple of 64
//                    rows, output rows beyond num_rows are not touched
//   keys, values     bfloat16 [num_kv_heads, cache_positions, head_dim]: position p is in slot
//                    p % cache_positions, so a window's cache may be a ring.  They must hold the
//                    rows' own keys and values already.  Other slots may hold anything.
//   scratch          64 * head_dim bfloat16: output of rows beyond the last one
//
// A column computes 64 queries at a time, of up to four heads that share keys and values.  Its four
// cores have 16 each.
//
//   shim channel           carries
//   memory to tile, 0      queries: [core][16 queries][head_dim]
//   memory to tile, 1      for each tile of 32 positions: keys, then values, to all four cores
//   tile to memory, 0      output: [core][16 queries][head_dim]
//
// Ranges are free at run time: an array is configured once for each head size.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/npu_worker/control/operand.h"
#include "services/npu_worker/control/transaction.h"

namespace tandem::npu {

struct AttentionJob {
  ArrayShape array;
  uint32_t head_dim = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t num_rows = 0;
  uint32_t first_position = 0;  // of the first row
  uint32_t window = 0;          // positions that a row sees, its own included; 0: all
  float scale = 1;
  uint32_t cache_positions = 0;  // a multiple of 32
  Operand queries;
  Operand keys;
  Operand values;
  Operand output;
  Operand scratch;
};

// INVALID_ARGUMENT, with the value: heads of another size than 64, 128 or 256, heads that their
// kv heads do not divide, no rows, a cache that is no multiple of 32 positions or too short for
// what the rows see, operands beyond 4 GiB.
absl::StatusOr<Transaction> BuildAttention(const AttentionJob& job);

}  // namespace tandem::npu
