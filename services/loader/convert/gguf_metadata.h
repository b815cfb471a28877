// What a GGUF file says of a Gemma 3 model beside its tensors.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "services/loader/convert/gguf_header_writer.h"
#include "services/loader/source/model_source.h"
#include "services/loader/source/weight_mix.h"

namespace tandem::loader {

// Adds the keys that llama.cpp and formats/gguf_model.cc read: the configuration, vocabulary,
// control tokens, chat template and sampling defaults.  INVALID_ARGUMENT: the format has no room
// for more than two stop tokens.
absl::Status AddGgufMetadata(const ModelSource& source, std::string_view name, const WeightMix& mix,
                             GgufHeaderWriter& header);

}  // namespace tandem::loader
