// Which number format each matrix of a model has, by the names people know from llama-quantize:
// "q8_0", "q4_k_m".
//
// A name is a format's own ("q4_0"), or q4_k_m or q5_k_m, in which half of the layers have V and
// down matrices in q6_k.  The embedding, which is the head too, is by default what real files give
// it: q6_k below a type of 4 or 5 bits, else the type itself.
//
// Formats in blocks of 256 need rows of a multiple of that; a matrix with other rows gets a larger
// format in blocks of 32, as in files that llama-quantize writes: q5_0 for q4_k, q8_0 for q6_k, and
// q8_0 for q5_k too, for there is no Q5_1 here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/tensor/dtype.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

struct WeightMix {
  DType type = DType::kQ4_0;       // of the matrices, before the rule of blocks of 256
  bool mixed = false;              // some V and down matrices in q6_k
  DType embedding = DType::kQ6_K;  // likewise

  std::string Name() const;  // "q4_k_m"
  // Of a matrix of `cols` columns.  A head of its own goes as the embedding.
  DType FormatOf(WeightRole role, SourcePart part, uint32_t layer_idx, uint32_t num_layers,
                 uint64_t cols) const;
};

// INVALID_ARGUMENT lists the names that exist.
absl::StatusOr<WeightMix> ParseWeightMix(std::string_view name);
// All names that ParseWeightMix takes.
std::vector<std::string> WeightMixNames();
// One format by its name; the same.
absl::StatusOr<DType> ParseDType(std::string_view name);

// The format a matrix of `cols` columns has where `wanted` is asked for.
DType FormatForColumns(DType wanted, uint64_t cols);

// Whether llama-quantize gives a layer's V and down matrices more bits in its "_M" mixes.
bool GetsMoreBits(uint32_t layer_idx, uint32_t num_layers);

}  // namespace tandem::loader
