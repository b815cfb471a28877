// A model in any form we read -> one GGUF file, in any number formats we read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "services/loader/source/model_source.h"
#include "services/loader/source/weight_mix.h"

namespace tandem::loader {

struct ConvertOptions {
  WeightMix mix;
  std::string name;         // general.name
  bool overwrite = false;   // a file that is there
  bool requantise = false;  // matrices that are quantised already, in another format
  int num_threads = 0;      // 0: one per core
};

struct ConvertProgress {
  uint64_t done_bytes = 0;  // of the file
  uint64_t total_bytes = 0;
};

struct ConvertedFile {
  uint64_t bytes = 0;
  double bits_per_weight = 0.0;
};

// Writes `path`, whole or not at all: into a file beside it that takes its name once it has been
// read back and says what `source` said.  Norms become float32; matrices take the mix's formats.
// `progress` is called ten times a second; false stops the work (CANCELLED).
// ALREADY_EXISTS: there is such a file.  INVALID_ARGUMENT: a number that its format cannot hold, or
// a matrix that is quantised already.  RESOURCE_EXHAUSTED: no room for the file.  NOT_FOUND: no
// such folder.
absl::StatusOr<ConvertedFile> ConvertToGguf(
    const ModelSource& source, const std::string& path, const ConvertOptions& options,
    const std::function<bool(const ConvertProgress&)>& progress);

}  // namespace tandem::loader
