// Reads package.json.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/npu_worker/package/package.h"

namespace tandem::npu {

// As OperatorPackage::Read.
absl::StatusOr<OperatorPackage> ReadPackage(const std::string& folder);

}  // namespace tandem::npu
