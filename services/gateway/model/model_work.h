// What a model's steps read and compute, from its tensors alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/common/model/model_config.h"
#include "services/common/weights/packed_tensor.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {

// Of the packed tensors; the regions that hold them are larger, by what pads them to pages.
uint64_t WeightBytes(const std::vector<PackedTensor>& tensors);

uint64_t NumParameters(const std::vector<PackedTensor>& tensors);

// Formats of the matrices, the one with the most bytes first: "q4_k, q6_k".
std::string WeightFormat(const std::vector<PackedTensor>& tensors);

// REQUIRES every role that a model needs, as TensorsFromProto checks for a loaded one.
v1::ModelWork WorkOf(const ModelConfig& config, const std::vector<PackedTensor>& tensors,
                     DType kv_dtype);

}  // namespace tandem::gateway
