// Control code of the GEMM: output[r, n] = sum_k activations[r, k] * weights[n, k].
//
//   activations  bfloat16 [rows, num_inputs], rows filled up to a multiple of 64
//   weights      q8_0 or q4_0: a shard as the loader packs it (weights/packed_tensor.h)
//                bf16: tiles of 64 outputs x 64 inputs, [outputs / 64][inputs / 64][inputs / 8 of a tile]
//                [outputs / 8 of a tile][8 inputs][8 outputs], both filled up with zeros to multiples of 64
//   output       float32 [rows, output_stride], rows filled up like the activations'
//
// The array computes in waves.  In a wave, the cores of row i have block i of 64 rows, the cores of
// column c a tile of 64 outputs:
//
//   shim channel           of column  carries
//   memory to tile, 0      0 to 3     activations of core row `column`, to all columns:
//                                     [tile][64 rows][64 inputs]
//   memory to tile, 1      each       weights of the column's tile; q8_0 and q4_0: for each 256 inputs
//                                     scales, then weights
//   tile to memory, 0      each       output of core rows 0 to 3: [row][64 rows][64 outputs]
//
// Where a wave has fewer blocks or tiles than cores, the cores left over compute the last one again
// and write the same values.  Sizes are free at run time; the array is configured once for each
// format of weights.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/npu_worker/control/core_parameters.h"
#include "services/npu_worker/control/operand.h"
#include "services/npu_worker/control/transaction.h"

namespace tandem::npu {

struct GemmJob {
  ArrayShape array;
  DType weight_dtype = DType::kQ8_0;
  uint32_t num_rows = 0;
  uint32_t num_outputs = 0;    // rows of the shard
  uint32_t num_inputs = 0;     // its columns
  uint32_t output_stride = 0;  // numbers; 0: num_outputs
  Operand activations;
  Operand weights;
  Operand output;
  ParameterPlace parameters;
};

// INVALID_ARGUMENT, with the value: formats without a core, inputs that are no multiple of 64,
// fewer than 4 columns, a stride that does not hold the outputs filled up to a multiple of 32 (bf16: 64);
// q8_0 and q4_0: fewer than 33 outputs.
absl::StatusOr<Transaction> BuildGemm(const GemmJob& job);

// Of weights in bf16, as above.
constexpr uint64_t GemmBf16Bytes(uint64_t num_outputs, uint64_t num_inputs) {
  return (num_outputs + 63) / 64 * 64 * ((num_inputs + 63) / 64 * 64) * 2;
}

// Rows that the activations' and the output's buffers must hold.
constexpr uint32_t GemmPaddedRows(uint32_t num_rows) { return (num_rows + 63) / 64 * 64; }

}  // namespace tandem::npu
