// Opens a model by its name or path, whatever its format.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/loader/source/model_source.h"

namespace tandem::loader {

// Opens a GGUF file or a safetensors folder by what it is, or makes a synthetic model
// (synthetic/synthetic_spec.h).  INVALID_ARGUMENT carries the file name, the byte offset and the
// reason; NOT_FOUND a missing file.
absl::StatusOr<std::unique_ptr<ModelSource>> OpenModelSource(const std::string& path);

// `tandem inspect`: header, configuration and tensors as aligned tables.
std::string DescribeModelSource(const ModelSource& source);

}  // namespace tandem::loader
