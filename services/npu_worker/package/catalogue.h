// The operators of this project that a package can have, and the NPUs that they are for: what packages for
// the emulated driver hold, and what scripts/npu-kernels builds.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/npu_worker/package/package.h"

namespace tandem::npu {

struct CatalogueDevice {
  std::string name;  // as a package says it
  ArrayShape array;
};

struct CatalogueOperator {
  std::string name;  // of the operator, its kernel and its array design
  ControlKind control = ControlKind::kAttention;
  uint32_t head_dim = 0;              // kAttention
  DType weight_dtype = DType::kQ8_0;  // kGemm
};

const std::vector<CatalogueDevice>& CatalogueDevices();
const std::vector<CatalogueOperator>& CatalogueOperators();

// Where a package's xclbin comes from.
struct PackageOrigin {
  std::string source, revision, toolchain, licence;
};

// The operator's entry in package.json, with default places of arguments and parameters.
nlohmann::ordered_json OperatorEntry(const CatalogueDevice& device, const CatalogueOperator& op,
                                     const std::string& xclbin, const PackageOrigin& origin);

}  // namespace tandem::npu
