// For tests: a packed model against the files it came from, number by number.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/base/shared_memory.h"
#include "services/common/tensor/quant.h"
#include "services/common/weights/dequantize.h"
#include "services/common/weights/weight_set.h"
#include "services/loader/packing/packer.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

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

inline DType FormatOfRow(const PackedTensor& tensor, uint64_t row) {
  for (const Shard& shard : tensor.shards) {
    if (row - shard.first_row < shard.num_rows) return shard.dtype;
  }
  return DType::kF32;
}

// Expects every number of every source tensor in its place: exactly, or rounded to f16 where the
// packed matrix is f16 and the source is not; norms with their offset added.
inline void ExpectPackedEqualsSource(const WeightSet& weights, const ModelSource& source) {
  for (const SourceTensor& from : source.tensors()) {
    const PackedTensor* tensor = weights.Find(from.role, from.layer_idx);
    ASSERT_NE(tensor, nullptr) << from.name;
    std::vector<std::byte> bytes(RowBytes(from.dtype, from.shape.cols));
    std::vector<float> expected(from.shape.cols), actual(from.shape.cols);
    for (uint64_t row = 0; row < from.shape.rows; ++row) {
      const uint64_t packed_row = PackedRowOf(from, row, source.config());
      const bool to_half =
          FormatOfRow(*tensor, packed_row) == DType::kF16 && from.dtype != DType::kF16;
      ASSERT_TRUE(source.Read(from, row * bytes.size(), bytes).ok());
      DequantizeFileRow(from.dtype, bytes, expected);
      for (float& number : expected) {
        number += from.norm_offset;
        if (to_half) number = HalfToFloat(FloatToHalf(number));
      }
      DequantizeRow(weights, *tensor, packed_row, actual);
      ASSERT_EQ(actual, expected) << from.name << " row " << row;
    }
  }
}

// A packed model as a consumer maps it; nullptr (and a failed test) when it is not valid.
inline std::unique_ptr<WeightSet> MapPacked(PackedModel model, const ModelSource& source) {
  std::vector<WeightRegion> regions;
  for (PackedRegion& packed : model.regions) {
    WeightRegion region;
    region.mapping =
        Mapping::Map(packed.fd.get(), packed.bytes, Mapping::Access::kReadOnly).value();
    region.fd = std::move(packed.fd);
    regions.push_back(std::move(region));
  }
  auto weights =
      WeightSet::Create("id", source.config(), std::move(model.tensors), std::move(regions));
  EXPECT_TRUE(weights.ok()) << weights.status();
  return weights.ok() ? *std::move(weights) : nullptr;
}

// Packs and compares.
inline void ExpectPacksExactly(const ModelSource& source, const PackOptions& options) {
  auto packed = PackModel(source, options, nullptr);
  ASSERT_TRUE(packed.ok()) << packed.status();
  const auto weights = MapPacked(*std::move(packed), source);
  ASSERT_NE(weights, nullptr);
  ExpectPackedEqualsSource(*weights, source);
}

}  // namespace tandem::loader
