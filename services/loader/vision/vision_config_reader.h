// Reads a vision encoder's sizes from a model's files.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "services/common/model/vision_config.h"
#include "services/loader/formats/gguf.h"

namespace tandem::loader {

// Whether a release's config.json is of a model with a vision encoder.
bool HasVisionConfig(const nlohmann::json& config);

// Of a release: `config` is config.json, `preprocessor` preprocessor_config.json (null: absent).
// Absent members have transformers' defaults (SiglipVisionConfig, Gemma3Config,
// Gemma3ImageProcessor).  INVALID_ARGUMENT names the member, its value and the expected one.
absl::StatusOr<VisionConfig> ReadVisionConfig(const nlohmann::json& config,
                                              const nlohmann::json& preprocessor);

// Whether a GGUF file holds a vision encoder (llama.cpp's `mmproj` files).
bool IsVisionGguf(const GgufHeader& header);

// Of an mmproj file.  INVALID_ARGUMENT names the key, its offset and the fault.
absl::StatusOr<VisionConfig> ReadVisionConfig(const GgufHeader& header);

}  // namespace tandem::loader
