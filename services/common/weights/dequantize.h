// Rows of packed tensors: where they lie, and their numbers as float32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "services/common/tensor/quant.h"
#include "services/common/weights/packed_tensor.h"
#include "services/common/weights/weight_set.h"

namespace tandem {

// Row `row` of a matrix's shard of `num_rows` x `num_cols` that begins at `shard`, counted from the
// shard's own first row.  REQUIRES row < num_rows.
PackedRow RowInShard(DType dtype, uint64_t num_rows, uint64_t num_cols, const std::byte* shard,
                     uint64_t row);
MutablePackedRow RowInShard(DType dtype, uint64_t num_rows, uint64_t num_cols, std::byte* shard,
                            uint64_t row);

// One row, [cols].  REQUIRES row < tensor.shape.rows, out.size() == tensor.shape.cols.
void DequantizeRow(const WeightSet& weights, const PackedTensor& tensor, uint64_t row,
                   std::span<float> out);

// The whole tensor, [rows, cols].
std::vector<float> DequantizeTensor(const WeightSet& weights, const PackedTensor& tensor);

}  // namespace tandem
