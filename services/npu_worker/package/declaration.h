// What array designs are built from, as JSON: the operators of a device, what their control code reaches, and
// the sizes and names of their cores' programs.  Read off control code and headers, so that designs cannot
// differ from them.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "services/npu_worker/package/catalogue.h"

namespace tandem::npu {

// Members: device, generation, columns, and for each of `operators`
//   entry   its entry in package.json; xclbin, provenance and licence are placeholders
//   shim    the channels of shim tiles that its control code starts tasks on: column, direction ("to_tile" or
//           "from_tile"), channel, the arguments that they carry, and whether control code waits for a token
//   cores   the tiles whose parameters its control code sets: column, row
//   program of the cores: source, name, object file, macros to build it with
//   streams the locks of the cores' streams: free, full
//   tile    sizes, in elements or bytes as named
// Errors: those of the builders in control/, which would be a mistake in this file.
absl::StatusOr<nlohmann::ordered_json> DeclareOperators(const CatalogueDevice& device);

}  // namespace tandem::npu
