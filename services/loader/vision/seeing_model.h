// A model together with its vision encoder, as one source of weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

// Opens the model at `path` with its vision encoder, whose tensors follow the decoder's and whose
// sizes are config().vision.  `named`: an mmproj file or a safetensors folder; empty: no encoder;
// nullopt: the one that FindVision finds.  An encoder that was found and cannot be used, because it
// is damaged, another model's or a link out of the model's folder, is left out with a warning: text
// is served without it.  Errors as OpenModelSource's; INVALID_ARGUMENT or NOT_FOUND if `named`
// cannot be used.
absl::StatusOr<std::unique_ptr<ModelSource>> OpenSeeingModel(
    const std::string& path, const std::optional<std::string>& named = std::nullopt);

}  // namespace tandem::loader
