#include "services/loader/packing/pack_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/half.h"
#include "services/common/base/status_macros.h"
#include "services/common/tensor/quant.h"

namespace tandem::loader {
namespace {

// The rows of a part that fall into a shard, as [first, end) of the part's own rows.
struct Overlap {
  uint64_t first = 0, end = 0;
};

Overlap RowsInShard(const PackedPart& part, uint64_t part_rows, const Shard& shard) {
  const auto first_at_or_after = [&](uint64_t packed_row) -> uint64_t {
    if (packed_row <= part.first_row) return 0;
    return std::min(part_rows, (packed_row - part.first_row + part.row_step - 1) / part.row_step);
  };
  return {first_at_or_after(shard.first_row), first_at_or_after(shard.first_row + shard.num_rows)};
}

// The one row of a norm, as float32 with its offset added.
void PackNorm(const SourceTensor& source, std::span<const std::byte> row,
              std::vector<float>& numbers, std::byte* shard_data) {
  numbers.resize(source.shape.cols);
  DequantizeFileRow(source.dtype, row, numbers);
  for (float& number : numbers) number += source.norm_offset;
  std::memcpy(shard_data, numbers.data(), numbers.size() * sizeof(float));
}

// One row of `source`, whatever its format, as packed f16.
absl::Status PackRowAsF16(const SourceTensor& source, std::span<const std::byte> row,
                          std::vector<float>& numbers, const MutablePackedRow& out) {
  numbers.resize(source.shape.cols);
  DequantizeFileRow(source.dtype, row, numbers);
  for (const float number : numbers) {
    if ((FloatToHalf(number) & 0x7FFFu) >= 0x7C00u) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "tensor '%s': %g does not fit f16, to which parts of differing formats are converted; "
          "store the matrix in one format",
          source.name, number));
    }
  }
  QuantizePackedRow(DType::kF16, numbers, out);
  return absl::OkStatus();
}

}  // namespace

std::vector<RowRange> SplitRows(const PackingPlan& plan, const std::vector<SourceTensor>& sources,
                                uint64_t bytes_per_range) {
  std::vector<RowRange> ranges;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const PlannedTensor& planned = plan.tensors[t];
    for (uint32_t s = 0; s < planned.tensor.shards.size(); ++s) {
      for (uint32_t p = 0; p < planned.parts.size(); ++p) {
        const SourceTensor& source = sources[planned.parts[p].source];
        const uint64_t row_bytes = source.num_bytes / source.shape.rows;
        const uint64_t step =
            std::max<uint64_t>(1, bytes_per_range / row_bytes / kTileRows) * kTileRows;
        const Overlap overlap =
            RowsInShard(planned.parts[p], source.shape.rows, planned.tensor.shards[s]);
        for (uint64_t row = overlap.first; row < overlap.end; row += step) {
          ranges.push_back({t, p, s, row, std::min(step, overlap.end - row)});
        }
      }
    }
  }
  const auto region_of = [&](const RowRange& range) {
    return plan.tensors[range.tensor].tensor.shards[range.shard].region;
  };
  std::stable_sort(ranges.begin(), ranges.end(), [&](const RowRange& a, const RowRange& b) {
    return region_of(a) < region_of(b);
  });
  return ranges;
}

absl::Status PackRows(const ModelSource& source, const PackingPlan& plan, const RowRange& range,
                      std::byte* shard_data, std::vector<std::byte>& scratch,
                      std::vector<float>& numbers) {
  const PlannedTensor& planned = plan.tensors[range.tensor];
  const PackedPart& part = planned.parts[range.part];
  const SourceTensor& from = source.tensors()[part.source];
  const Shard& shard = planned.tensor.shards[range.shard];
  const DType dtype = shard.dtype;
  const uint64_t cols = from.shape.cols;
  const uint64_t row_bytes = RowBytes(from.dtype, cols);
  const uint64_t file_offset = range.first_source_row * row_bytes;
  const std::vector<Plane> planes = PlanesOf(dtype, shard.num_rows, cols);
  const uint64_t first_row =
      part.first_row + range.first_source_row * part.row_step - shard.first_row;
  scratch.resize(range.num_rows * row_bytes);
  TANDEM_RETURN_IF_ERROR(source.Read(from, file_offset, scratch));
  if (IsNorm(planned.tensor.role)) {
    PackNorm(from, scratch, numbers, shard_data);
    return absl::OkStatus();
  }
  for (uint64_t i = 0; i < range.num_rows; ++i) {
    const std::span<const std::byte> row(scratch.data() + i * row_bytes, row_bytes);
    MutablePackedRow out;
    for (size_t p = 0; p < planes.size(); ++p) {
      out.planes[p] = shard_data + planes[p].RowOffset(first_row + i * part.row_step);
    }
    if (from.dtype == dtype) {
      RepackRow(dtype, row, cols, out);
    } else {
      TANDEM_RETURN_IF_ERROR(PackRowAsF16(from, row, numbers, out));
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem::loader
