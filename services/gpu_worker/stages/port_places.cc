#include "services/gpu_worker/stages/port_places.h"

namespace tandem::gpu {
namespace {

// The stage that writes a port other than the residual.
StageKind WriterOf(Port port) {
  switch (port) {
    case Port::kAttention:
      return StageKind::kAttend;
    case Port::kProjection:
      return StageKind::kOut;
    default:
      return StageKind::kQkv;
  }
}

}  // namespace

bool PortPlaces::IsLastWriter(Port port, uint32_t ordinal) const {
  for (uint32_t i = ordinal + 1; i <= segment_.last_ordinal; ++i) {
    if (StageAt(i, num_layers_).kind == WriterOf(port)) return false;
  }
  return true;
}

bool PortPlaces::IsWrittenBefore(Port port, uint32_t ordinal) const {
  for (uint32_t i = segment_.first_ordinal; i < ordinal; ++i) {
    if (StageAt(i, num_layers_).kind == WriterOf(port)) return true;
  }
  return false;
}

uint64_t PortPlaces::LaneAddress(Port port) const {
  switch (port) {
    case Port::kResidual:
      return lane_buffers_.residual.address();
    case Port::kQ:
      return lane_buffers_.q.address();
    case Port::kK:
      return lane_buffers_.k.address();
    case Port::kV:
      return lane_buffers_.v.address();
    case Port::kAttention:
      return lane_buffers_.attention.address();
    case Port::kProjection:
      return lane_buffers_.projection.address();
  }
  return 0;
}

uint64_t PortPlaces::WrittenAt(Port port, uint32_t ordinal) const {
  if (Has(segment_.outputs, port) && IsLastWriter(port, ordinal)) {
    return Shared(port);
  }
  return LaneAddress(port);
}

uint64_t PortPlaces::ReadAt(Port port, uint32_t ordinal) const {
  if (!IsWrittenBefore(port, ordinal)) {
    return Has(segment_.inputs, port) ? Shared(port) : LaneAddress(port);
  }
  uint32_t writer = ordinal - 1;
  while (StageAt(writer, num_layers_).kind != WriterOf(port)) --writer;
  return WrittenAt(port, writer);
}

}  // namespace tandem::gpu
