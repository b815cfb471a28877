// A model's weights, packed in this process.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "services/common/weights/weight_set.h"
#include "services/loader/formats/open_model.h"

namespace tandem::bench {

absl::StatusOr<std::shared_ptr<const WeightSet>> PackWeights(const loader::ModelSource& source);

}  // namespace tandem::bench
