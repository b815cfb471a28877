// A model together with its vision encoder, as one source of weights.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

// Opens the model at `path` with the encoder that FindVision finds, whose tensors follow the
// decoder's and whose sizes are config().vision.  An encoder that cannot be used, because it is
// damaged, another model's or a link out of the model's folder, is left out with a warning: text is
// served without it.  Errors as OpenModelSource's.
absl::StatusOr<std::unique_ptr<ModelSource>> OpenSeeingModel(const std::string& path);

}  // namespace tandem::loader
