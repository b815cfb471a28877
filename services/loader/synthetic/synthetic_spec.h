// Names of models that are made and not read: "synthetic:gemma3-27b?type=q4_0&seed=1".
//
//   synthetic:SHAPE[?NAME=VALUE[&NAME=VALUE]...]
//
//   SHAPE      gemma3-270m, gemma3-1b, gemma3-4b, gemma3-12b or gemma3-27b
//   type       number format of the matrices: a format's name ("q4_0"), or q4_k_m or q5_k_m, in
//   which
//              half of the layers have V and down matrices in q6_k; q4_0 if it is not given
//   embedding  number format of the embedding, which is the head too; by default that of real
//              files: q6_k below a type of 4 or 5 bits, else the type itself
//   seed       of the random weights, 1 if it is not given
//   layers hidden ffn heads kv_heads head_dim vocab context window
//              replace the shape's own, for tests and for what-if questions
//
// Formats in blocks of 256 need rows of a multiple of that; a matrix with other rows gets a larger
// format in blocks of 32, as in files that llama-quantize writes: q5_0 for q4_k, q8_0 for q6_k, and
// q8_0 for q5_k too, for there is no Q5_1 here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/tensor/dtype.h"

namespace tandem::loader {

struct SyntheticSpec {
  std::string name;  // all of it spelt out, in one order: the same model has the same name
  ModelConfig config;
  DType type = DType::kQ4_0;       // of the matrices, before the rule of blocks of 256
  bool mixed = false;              // some V and down matrices in q6_k
  DType embedding = DType::kQ6_K;  // likewise
  uint64_t seed = 1;
};

// Fewest pieces a synthetic vocabulary has: control tokens and bytes.
inline constexpr uint32_t kMinSyntheticVocabulary = 272;

// Whether a model's name asks for a synthetic one.
bool IsSyntheticName(std::string_view name);

// INVALID_ARGUMENT says what is wrong, and what is allowed instead.
absl::StatusOr<SyntheticSpec> ParseSyntheticName(std::string_view name);

// The format a matrix of `cols` columns has where `wanted` is asked for.
DType FormatForColumns(DType wanted, uint64_t cols);

// Whether llama-quantize gives a layer's V and down matrices more bits in its "_M" mixes.
bool GetsMoreBits(uint32_t layer_idx, uint32_t num_layers);

}  // namespace tandem::loader
