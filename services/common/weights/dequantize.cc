#include "services/common/weights/dequantize.h"

#include <cstring>

#include "services/common/base/check.h"

namespace tandem {

MutablePackedRow RowInShard(DType dtype, uint64_t num_rows, uint64_t num_cols, std::byte* shard,
                            uint64_t row) {
  TANDEM_CHECK(row < num_rows);
  const std::vector<Plane> planes = PlanesOf(dtype, num_rows, num_cols);
  MutablePackedRow result;
  for (size_t p = 0; p < planes.size(); ++p) {
    result.planes[p] = shard + planes[p].RowOffset(row);
  }
  return result;
}

PackedRow RowInShard(DType dtype, uint64_t num_rows, uint64_t num_cols, const std::byte* shard,
                     uint64_t row) {
  return RowInShard(dtype, num_rows, num_cols, const_cast<std::byte*>(shard), row);
}

void DequantizeRow(const WeightSet& weights, const PackedTensor& tensor, uint64_t row,
                   std::span<float> out) {
  TANDEM_CHECK(row < tensor.shape.rows && out.size() == tensor.shape.cols);
  for (const Shard& shard : tensor.shards) {
    if (row - shard.first_row >= shard.num_rows) continue;
    const std::byte* data = weights.ShardData(shard);
    if (IsNorm(tensor.role)) {
      std::memcpy(out.data(), data, out.size_bytes());
    } else {
      DequantizePackedRow(
          shard.dtype,
          RowInShard(shard.dtype, shard.num_rows, tensor.shape.cols, data, row - shard.first_row),
          out);
    }
    return;
  }
}

std::vector<float> DequantizeTensor(const WeightSet& weights, const PackedTensor& tensor) {
  std::vector<float> values(tensor.shape.rows * tensor.shape.cols);
  for (uint64_t row = 0; row < tensor.shape.rows; ++row) {
    DequantizeRow(weights, tensor, row,
                  std::span(values).subspan(row * tensor.shape.cols, tensor.shape.cols));
  }
  return values;
}

}  // namespace tandem
