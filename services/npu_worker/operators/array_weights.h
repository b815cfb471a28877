// Weights as an array's GEMM takes them: a copy in bfloat16, made when a plan is loaded.
//
//   [outputs / 64][inputs / 64] tiles of [inputs / 8][outputs / 8] blocks of [8 inputs][8 outputs]
//
// Outputs and inputs are filled up with zeros to multiples of 64.  A column of the array reads its tile of
// 64 outputs as one run of memory, and a core multiplies what arrives as it is.
#pragma once

#include <cstdint>
#include <span>

#include "services/common/weights/packed_tensor.h"
#include "services/common/weights/weight_set.h"

namespace tandem::npu {

// Of a matrix [num_outputs, num_inputs].
uint64_t NumArrayWeights(uint64_t num_outputs, uint64_t num_inputs);

// Fills `out` from a matrix of any format, rounded to nearest even.
// REQUIRES out.size() == NumArrayWeights of the tensor's shape.
void PackArrayWeights(const WeightSet& weights, const PackedTensor& tensor,
                      std::span<uint16_t> out);

}  // namespace tandem::npu
