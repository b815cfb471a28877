// Weights as an array's GEMMs take them: copies, made when a plan is loaded.
//
//   GEMM over    a copy has
//   q8_0, q4_0   the layout of a loader's shard (weights/packed_tensor.h), from shards of the same format
//   bf16         bfloat16, from any format: [outputs / 64][inputs / 64] tiles of
//                [inputs / 8][outputs / 8] blocks of [8 inputs][8 outputs]
//
// Outputs and inputs are filled up with zeros to multiples of 64.  Shards of a matrix may differ in format, so
// a matrix is cut into parts: ranges of outputs, each with a GEMM of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/common/weights/packed_tensor.h"
#include "services/common/weights/weight_set.h"

namespace tandem::npu {

struct MatrixPart {
  DType format = DType::kBf16;  // of the GEMM's weights
  uint32_t first_output = 0;    // a multiple of 64
  uint32_t num_outputs = 0;     // a multiple of 64, unless it is the last part

  friend auto operator<=>(const MatrixPart&, const MatrixPart&) = default;
};

// The parts of a matrix, in order, as few as there can be: a shard goes to the GEMM of its own format where
// `formats` has it, else to that over bf16.  The whole matrix goes to that over bf16 where parts would
// begin within 64 outputs.  FAILED_PRECONDITION names the tensor and a format that no GEMM reads.
absl::StatusOr<std::vector<MatrixPart>> PartsOf(const PackedTensor& tensor,
                                                std::span<const DType> formats);

// Of a copy of `num_outputs` rows of a matrix.  REQUIRES a format of a GEMM.
uint64_t ArrayWeightBytes(DType format, uint64_t num_outputs, uint64_t num_inputs);

// Fills `out`; bf16 is rounded to nearest even.  REQUIRES a part of PartsOf, zeros in `out`, and
// out.size() == ArrayWeightBytes of the part, or more.
void PackArrayWeights(const WeightSet& weights, const PackedTensor& tensor, const MatrixPart& part,
                      std::span<std::byte> out);

}  // namespace tandem::npu
