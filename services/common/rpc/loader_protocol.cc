#include "services/common/rpc/loader_protocol.h"

#include "absl/strings/str_format.h"

namespace tandem {

void StampLoaderProtocol(loader::v1::Model& model) {
  model.set_protocol_version(kLoaderProtocolVersion);
  model.set_tile_layout(kTileLayout);
}

absl::Status CheckLoaderProtocol(const loader::v1::Model& model) {
  if (model.protocol_version() != kLoaderProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the loader speaks version %d of its protocol, and this process version %d: restart all "
        "services with one release",
        model.protocol_version(), kLoaderProtocolVersion));
  }
  if (model.tile_layout() != kTileLayout) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the loader packed model '%s' in the tile layout '%s', and this process "
                        "reads '%s': restart all services with one release",
                        model.name(), model.tile_layout(), kTileLayout));
  }
  return absl::OkStatus();
}

}  // namespace tandem
