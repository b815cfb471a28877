// Names of models that are made and not read: "synthetic:gemma3-27b?type=q4_0&seed=1".
//
//   synthetic:SHAPE[?NAME=VALUE[&NAME=VALUE]...]
//
//   SHAPE      gemma3-270m, gemma3-1b, gemma3-4b, gemma3-12b or gemma3-27b
//   type       number formats of the matrices, a WeightMix's name (source/weight_mix.h);
//              q4_0 if it is not given
//   embedding  number format of the embedding, which is the head too; by default the mix's
//   seed       of the random weights, 1 if it is not given
//   layers hidden ffn heads kv_heads head_dim vocab context window
//              replace the shape's own, for tests and for what-if questions
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/loader/source/weight_mix.h"

namespace tandem::loader {

struct SyntheticSpec {
  std::string name;  // all of it spelt out, in one order: the same model has the same name
  ModelConfig config;
  WeightMix mix;
  uint64_t seed = 1;
};

// Fewest pieces a synthetic vocabulary has: control tokens and bytes.
inline constexpr uint32_t kMinSyntheticVocabulary = 272;

// Whether a model's name asks for a synthetic one.
bool IsSyntheticName(std::string_view name);

// INVALID_ARGUMENT names the fault and the allowed values.
absl::StatusOr<SyntheticSpec> ParseSyntheticName(std::string_view name);

}  // namespace tandem::loader
