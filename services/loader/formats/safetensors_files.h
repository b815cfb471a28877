// The files of tensors of a safetensors release, opened and checked against each other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/loader/formats/decoder_tensors.h"
#include "services/loader/formats/model_folder.h"
#include "services/loader/formats/opened_model.h"

namespace tandem::loader {

struct SafetensorsFiles {
  std::vector<FileTensor> tensors;      // FileTensor::file indexes `files`
  std::vector<std::string> file_names;  // as printed in errors, parallel to files
  std::vector<FileSource> files;
  std::vector<std::pair<std::string, std::string>> metadata;  // "FILE: KEY", printable
};

// model.safetensors, or the files of model.safetensors.index.json; the index and the files must
// name the same tensors.  Headers are added to `hash`.
absl::StatusOr<SafetensorsFiles> OpenSafetensorsFiles(const ModelFolder& folder, ContentHash& hash);

}  // namespace tandem::loader
