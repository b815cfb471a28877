// Control code of attention over rows of a step: runs of consecutive rows of one sequence, in one layer.
//
//   output[r, h] = sum_j softmax_j(scale * q[r, h] . k[j, g]) v[j, g],  first <= j <= last
//   g = h / (num_heads / num_kv_heads); last = position of r
//   first = 0 without a window, else max(0, position + 1 - window)
//
// A picture's rows see each other: for them first is at most the picture's first position, and last
// is the position of their run's last row.
//
//   queries, output  bfloat16 [rows, num_heads, head_dim]; queries are read up to 64 rows beyond a
//                    run's last one, output rows that belong to no run are not touched
//   keys, values     bfloat16 [num_kv_heads, cache_slots, head_dim].  A run's extents say in which
//                    slots its sequence's positions are; its own rows' keys and values must be there
//                    already.  The last 32 slots of each head must hold zeros.  Others may hold anything.
//   scratch          64 * head_dim bfloat16: output of rows beyond a run's last one
//
// A column computes 64 queries at a time, of up to four heads that share keys and values.  Its four
// cores have 16 each.
//
//   shim channel           carries
//   memory to tile, 0      queries: [core][16 queries][head_dim]
//   memory to tile, 1      for each tile of 32 positions: keys, then values, to all four cores
//   tile to memory, 0      output: [core][16 queries][head_dim]
//
// Tiles begin at multiples of 32 positions whatever the run, so a row's result does not depend on the
// rows beside it.  Positions in consecutive slots are read by one pair of descriptors for up to 64 tiles.
// A tile in several places takes a pair for each two of them.
//
// Ranges are free at run time: an array is configured once for each head size.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/npu_worker/control/cache_tasks.h"
#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/control/operand.h"
#include "services/npu_worker/control/transaction.h"

namespace tandem::npu {

inline constexpr uint32_t kNoPictureRows = std::numeric_limits<uint32_t>::max();

// Consecutive rows of one sequence, at consecutive positions.
struct AttentionRun {
  uint32_t first_row = 0;
  uint32_t num_rows = 0;
  uint32_t first_position = 0;
  uint32_t picture_first = kNoPictureRows;  // position of the picture whose last rows these are
  // By position, without holes, from what the first row sees to the last row.
  std::span<const CacheExtent> extents;
};

struct AttentionJob {
  ArrayShape array;
  ParameterPlace parameters;
  uint32_t head_dim = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t window = 0;  // positions that a row sees, its own included; 0: all
  float scale = 1;
  uint32_t cache_slots = 0;  // of each kv head, with the 32 that hold zeros
  Operand queries;
  Operand keys;
  Operand values;
  Operand output;
  Operand scratch;
};

// Appends transactions that compute all runs, each of at most `max_bytes`.  INVALID_ARGUMENT, with the
// value: heads of another size than 64, 128 or 256, heads that their kv heads do not divide, no rows,
// extents with holes or outside the cache, or that do not hold what the rows see, operands beyond
// 4 GiB.  RESOURCE_EXHAUSTED: `max_bytes` is below AttentionCodeBytes.
absl::Status BuildAttention(const AttentionJob& job, std::span<const AttentionRun> runs,
                            uint32_t max_bytes, std::vector<Transaction>& code);

// One transaction.
absl::StatusOr<Transaction> BuildAttention(const AttentionJob& job,
                                           std::span<const AttentionRun> runs);

// Bytes that hold what one column does at a time, however the cache lies, for sequences of
// `num_positions` positions in blocks of `block_tokens`.
uint64_t AttentionCodeBytes(uint64_t num_positions, uint32_t block_tokens);

}  // namespace tandem::npu
