// config.json and generation_config.json of a Gemma 3 release.
#pragma once

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "services/common/model/model_config.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

struct ReleaseConfig {
  ModelConfig model;  // stop_token_ids: only those that the files list
  bool tied = true;   // the output matrix is the embedding
  SamplingDefaults sampling;
};

// `config`: a gemma3_text configuration, or a gemma3 one with its text part in `text_config`; what
// is absent has transformers' defaults.  Both spellings of the rotary settings are read:
// rope_theta, rope_local_base_freq, rope_scaling and sliding_window_pattern, and the newer
// rope_parameters and layer_types.  `generation_config`: null when there is none.
// INVALID_ARGUMENT names the member, its value and the expected one.
absl::StatusOr<ReleaseConfig> ReadReleaseConfig(const nlohmann::json& config,
                                                const nlohmann::json& generation_config);

}  // namespace tandem::loader
