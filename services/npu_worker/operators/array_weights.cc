#include "services/npu_worker/operators/array_weights.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/weights/dequantize.h"
#include "services/npu_worker/control/gemm.h"
#include "services/npu_worker/kernels/aie/gemm_tile.h"

namespace tandem::npu {
namespace {

constexpr uint64_t kBlockNumbers = uint64_t{kGemmBlock} * kGemmBlock;
constexpr uint64_t kBlocksOfTile = kGemmOutputs / kGemmBlock;  // in each direction
static_assert(kGemmInputs == kGemmOutputs);

uint64_t Padded(uint64_t size) { return (size + kGemmInputs - 1) / kGemmInputs * kGemmInputs; }

bool Has(std::span<const DType> formats, DType format) {
  return std::ranges::find(formats, format) != formats.end();
}

void PackBf16(const WeightSet& weights, const PackedTensor& tensor, const MatrixPart& part,
              uint16_t* out) {
  const uint64_t num_inputs = tensor.shape.cols;
  const uint64_t padded_inputs = Padded(num_inputs);
  // [8 outputs][padded_inputs]; what lies behind the matrix stays zero.
  std::vector<float> rows(kGemmBlock * padded_inputs);
  for (uint64_t first = 0; first < Padded(part.num_outputs); first += kGemmBlock) {
    for (uint64_t i = 0; i < kGemmBlock; ++i) {
      const auto row = std::span(rows).subspan(i * padded_inputs, num_inputs);
      if (first + i < part.num_outputs) {
        DequantizeRow(weights, tensor, part.first_output + first + i, row);
      } else {
        std::ranges::fill(row, 0.0f);
      }
    }
    uint16_t* const tiles = out + first / kGemmOutputs * kGemmOutputs * padded_inputs;
    const uint64_t group = first % kGemmOutputs / kGemmBlock;
    for (uint64_t input = 0; input < padded_inputs; input += kGemmBlock) {
      const uint64_t block = input % kGemmInputs / kGemmBlock * kBlocksOfTile + group;
      uint16_t* to =
          tiles + input / kGemmInputs * kGemmInputs * kGemmOutputs + block * kBlockNumbers;
      for (uint64_t k = 0; k < kGemmBlock; ++k) {
        for (uint64_t i = 0; i < kGemmBlock; ++i) {
          *to++ = FloatToBf16(rows[i * padded_inputs + input + k]);
        }
      }
    }
  }
}

// In both layouts a tile of 32 rows is one run of memory in each plane; the copy has more pieces in it
// where its rows are longer.
void CopyShard(const WeightSet& weights, const PackedTensor& tensor, const Shard& shard,
               const MatrixPart& part, std::byte* out) {
  const std::vector<Plane> from = PlanesOf(shard.dtype, shard.num_rows, tensor.shape.cols);
  const std::vector<Plane> to =
      PlanesOf(part.format, Padded(part.num_outputs), Padded(tensor.shape.cols));
  const std::byte* const data = weights.ShardData(shard);
  for (size_t p = 0; p < from.size(); ++p) {
    for (uint64_t row = 0; row < shard.num_rows; row += kTileRows) {
      std::memcpy(out + to[p].RowOffset(shard.first_row - part.first_output + row),
                  data + from[p].RowOffset(row), from[p].pieces_per_row * from[p].piece.stride());
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<MatrixPart>> PartsOf(const PackedTensor& tensor,
                                                std::span<const DType> formats) {
  const bool has_bf16 = Has(formats, DType::kBf16);
  const MatrixPart whole = {.num_outputs = static_cast<uint32_t>(tensor.shape.rows)};
  std::vector<MatrixPart> parts;
  for (const Shard& shard : tensor.shards) {
    const DType format = Has(formats, shard.dtype) ? shard.dtype : DType::kBf16;
    const auto num_rows = static_cast<uint32_t>(shard.num_rows);
    if (!Has(formats, format)) {
      std::vector<std::string> names;
      for (const DType known : formats) names.emplace_back(Traits(known).name);
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: the NPU does not read %s weights, its package has GEMMs over %s", tensor.Name(),
          std::string(Traits(shard.dtype).name), absl::StrJoin(names, ", ")));
    }
    if (!parts.empty() && parts.back().format == format) {
      parts.back().num_outputs += num_rows;
      continue;
    }
    if (shard.first_row % kGemmOutputs != 0) {
      if (has_bf16) return std::vector<MatrixPart>{whole};
      return absl::FailedPreconditionError(absl::StrFormat(
          "%s: the format changes at row %d, must be at a multiple of %d for the NPU",
          tensor.Name(), shard.first_row, kGemmOutputs));
    }
    parts.push_back({.format = format,
                     .first_output = static_cast<uint32_t>(shard.first_row),
                     .num_outputs = num_rows});
  }
  return parts;
}

uint64_t ArrayWeightBytes(DType format, uint64_t num_outputs, uint64_t num_inputs) {
  if (format == DType::kBf16) return GemmBf16Bytes(num_outputs, num_inputs);
  return ShardBytes(format, Padded(num_outputs), Padded(num_inputs));
}

void PackArrayWeights(const WeightSet& weights, const PackedTensor& tensor, const MatrixPart& part,
                      std::span<std::byte> out) {
  TANDEM_CHECK(out.size() >= ArrayWeightBytes(part.format, part.num_outputs, tensor.shape.cols));
  if (part.format == DType::kBf16) {
    PackBf16(weights, tensor, part, reinterpret_cast<uint16_t*>(out.data()));
    return;
  }
  for (const Shard& shard : tensor.shards) {
    if (shard.first_row - part.first_output < part.num_outputs) {
      CopyShard(weights, tensor, shard, part, out.data());
    }
  }
}

}  // namespace tandem::npu
