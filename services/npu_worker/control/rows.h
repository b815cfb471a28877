// Control code of the row functions: what a layer computes between its matrices, a row at a time.
//
//   function   first               second                weights      output
//   kNorm      float32 [size]                            [size]       bfloat16 [size]
//   kNormAdd   float32 [size]      float32 [size]        [size]       float32 [size]
//   kRope      float32 [size]:     float32 [num_heads]   [size]       bfloat16 [num_heads][size]
//              cosines and sines   [size]
//   kGeglu     float32 [2 size]:                                      bfloat16 [size]
//              gates, ups by turns
//
// of each row.  Rows are filled up to a multiple of 4, and numbers to a multiple of 64.  An output may be
// where the second operand is.
//
// A column's four cores have a row each of four that follow one another.  Columns have ranges of rows.
//
//   shim channel           carries
//   memory to tile, 0      of four rows: the first operand, then the second, [32 words][4 rows] by turns
//   memory to tile, 1      weights, once, to all four cores
//   tile to memory, 0      the output of four rows, [32 words][4 rows] by turns
//
// One descriptor for each operand brings all rows of a column.  Function and sizes are free at run time:
// an array is configured once for all of them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/control/operand.h"
#include "services/npu_worker/control/transaction.h"
#include "services/npu_worker/kernels/aie/row_tile.h"

namespace tandem::npu {

// Rows of an operand, `stride` words from one to the next.
struct RowOperand {
  Operand place;
  uint32_t stride = 0;
};

struct RowJob {
  ArrayShape array;
  ParameterPlace parameters;
  RowFunction function = RowFunction::kNorm;
  uint32_t num_rows = 0;
  uint32_t size = 0;       // as above
  uint32_t num_heads = 1;  // kRope
  uint32_t count = 0;      // numbers that a norm's mean is over; 0: size
  float epsilon = 0;
  RowOperand first, second, output;
  Operand weights;  // float32
};

// 32-bit words of a row of each operand.
struct RowWords {
  uint32_t first = 0, second = 0, weights = 0, output = 0;
};
RowWords RowWordsOf(const RowJob& job);

// Rows that one transaction can have.
constexpr uint32_t MaxJobRows(const ArrayShape& array) {
  return 64 * kRowCores * array.num_columns;
}
// Rows that the operands' buffers must hold.
constexpr uint32_t PaddedJobRows(uint32_t num_rows) {
  return (num_rows + kRowCores - 1) / kRowCores * kRowCores;
}

// INVALID_ARGUMENT, with the value: no rows or too many, sizes that are no multiple of 64 or that a core
// has no room for, strides shorter than rows, operands beyond 4 GiB.
absl::StatusOr<Transaction> BuildRows(const RowJob& job);

}  // namespace tandem::npu
