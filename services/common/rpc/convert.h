// Manifests on the wire <-> the project's own types.  What comes in is checked.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "services/common/model/model_config.h"
#include "services/common/weights/packed_tensor.h"
#include "tandem/loader/v1/loader.pb.h"

namespace tandem {

loader::v1::ModelConfig ToProto(const ModelConfig& config);
loader::v1::PackedTensor ToProto(const PackedTensor& tensor);

// INVALID_ARGUMENT as ModelConfig::Validate.
absl::StatusOr<ModelConfig> ConfigFromProto(const loader::v1::ModelConfig& proto);

// Every tensor of `model`, each checked as ValidatePackedTensor does.  INVALID_ARGUMENT names the
// tensor and both values.
absl::StatusOr<std::vector<PackedTensor>> TensorsFromProto(const loader::v1::Model& model,
                                                           const ModelConfig& config);

}  // namespace tandem
