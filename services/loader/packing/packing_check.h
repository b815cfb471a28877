// For tests: a packed model against the files it came from, number by number.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/base/shared_memory.h"
#include "services/common/tensor/quant.h"
#include "services/common/weights/weight_set.h"
#include "services/loader/formats/model_source.h"

namespace tandem::loader {

// Row `row` of a packed tensor, dequantised.
inline std::vector<float> PackedNumbers(const WeightSet& weights, const PackedTensor& tensor,
                                        uint64_t row) {
  for (const Shard& shard : tensor.shards) {
    if (row < shard.first_row || row >= shard.first_row + shard.num_rows) continue;
    const std::vector<Plane> planes = PlanesOf(tensor.dtype, shard.num_rows, tensor.shape.cols);
    PackedRow packed;
    for (size_t p = 0; p < planes.size(); ++p) {
      packed.planes[p] = weights.ShardData(shard) + planes[p].offset +
                         (row - shard.first_row) * planes[p].row_bytes;
    }
    std::vector<float> numbers(tensor.shape.cols);
    DequantizePackedRow(tensor.dtype, packed, numbers);
    return numbers;
  }
  ADD_FAILURE() << tensor.Name() << " has no row " << row;
  return {};
}

// The packed row that row `row` of a source tensor must have become.
inline uint64_t PackedRowOf(const SourceTensor& source, uint64_t row, const ModelConfig& config) {
  switch (source.part) {
    case SourcePart::kK:
      return config.q_dim() + row;
    case SourcePart::kV:
      return config.q_dim() + config.kv_dim() + row;
    case SourcePart::kGate:
      return 2 * row;
    case SourcePart::kUp:
      return 2 * row + 1;
    default:
      return row;
  }
}

// Expects every number of every source tensor in its place: exactly, or rounded to f16 where the
// packed matrix is f16 and the source is not; norms with their offset added.
inline void ExpectPackedEqualsSource(const WeightSet& weights, const ModelSource& source) {
  for (const SourceTensor& from : source.tensors()) {
    const PackedTensor* tensor = weights.Find(from.role, from.layer_idx);
    ASSERT_NE(tensor, nullptr) << from.name;
    const bool to_half = tensor->dtype == DType::kF16 && from.dtype != DType::kF16;
    std::vector<std::byte> bytes(RowBytes(from.dtype, from.shape.cols));
    std::vector<float> expected(from.shape.cols);
    for (uint64_t row = 0; row < from.shape.rows; ++row) {
      ASSERT_TRUE(source.Read(from, row * bytes.size(), bytes).ok());
      DequantizeFileRow(from.dtype, bytes, expected);
      for (float& number : expected) {
        number += from.norm_offset;
        if (to_half) number = HalfToFloat(FloatToHalf(number));
      }
      const auto actual = PackedNumbers(weights, *tensor, PackedRowOf(from, row, source.config()));
      ASSERT_EQ(actual, expected) << from.name << " row " << row;
    }
  }
}

}  // namespace tandem::loader
