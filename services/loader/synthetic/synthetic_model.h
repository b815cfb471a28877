// A model of any shape without a file, for measuring and for tests.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

// The model of a synthetic name (synthetic_spec.h).  Its weights are random; scales are chosen so
// that activations neither vanish nor explode and no token is certain: the embedding is small
// beside what the layers add, every layer adds about as much, and logits deviate by about 3.
// Its vocabulary has Gemma's control tokens, all bytes and made-up words, and encodes text byte
// by byte.  The same name gives the same bytes on every machine.
// INVALID_ARGUMENT as ParseSyntheticName.
absl::StatusOr<std::unique_ptr<ModelSource>> OpenSynthetic(std::string_view name);

}  // namespace tandem::loader
