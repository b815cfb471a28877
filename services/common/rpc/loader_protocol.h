// Which loaders and clients understand one another.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "tandem/loader/v1/loader.pb.h"

namespace tandem {

// Of loader.proto, raised by each change that older clients or loaders would misread.
inline constexpr uint32_t kLoaderProtocolVersion = 1;
// Names the layout of weights/packed_tensor.h, and changes with it: a loader that stays up over an
// upgrade may hold weights in another.  LayoutFingerprintTest says when a new name is due.
inline constexpr char kTileLayout[] = "rows32-b";

// Sets what this release speaks and packs.
void StampLoaderProtocol(loader::v1::Model& model);
// FAILED_PRECONDITION names both versions, or both layouts.
absl::Status CheckLoaderProtocol(const loader::v1::Model& model);

}  // namespace tandem
