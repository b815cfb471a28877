#include "services/npu_worker/operators/array_weights.h"

#include <algorithm>
#include <vector>

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

}  // namespace

uint64_t NumArrayWeights(uint64_t num_outputs, uint64_t num_inputs) {
  return GemmBf16Bytes(num_outputs, num_inputs) / sizeof(uint16_t);
}

void PackArrayWeights(const WeightSet& weights, const PackedTensor& tensor,
                      std::span<uint16_t> out) {
  const uint64_t num_outputs = tensor.shape.rows, num_inputs = tensor.shape.cols;
  TANDEM_CHECK(out.size() == NumArrayWeights(num_outputs, num_inputs));
  const uint64_t padded_inputs = Padded(num_inputs);
  // [8 outputs][padded_inputs]; what lies behind the matrix stays zero.
  std::vector<float> rows(kGemmBlock * padded_inputs);
  for (uint64_t first = 0; first < Padded(num_outputs); first += kGemmBlock) {
    for (uint64_t i = 0; i < kGemmBlock; ++i) {
      const auto row = std::span(rows).subspan(i * padded_inputs, num_inputs);
      if (first + i < num_outputs) {
        DequantizeRow(weights, tensor, first + i, row);
      } else {
        std::ranges::fill(row, 0.0f);
      }
    }
    uint16_t* const tiles = out.data() + first / kGemmOutputs * kGemmOutputs * padded_inputs;
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

}  // namespace tandem::npu
