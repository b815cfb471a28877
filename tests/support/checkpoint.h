// Model files, opened and packed in process as the loader does it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/model/vocabulary.h"
#include "services/common/weights/weight_set.h"

namespace tandem::testing {

struct Checkpoint {
  std::shared_ptr<const WeightSet> weights;  // in sealed, read-only regions
  Vocabulary vocabulary;
};

// Opens a GGUF file or a safetensors folder and packs it.
absl::StatusOr<Checkpoint> LoadCheckpoint(const std::string& path);

}  // namespace tandem::testing
