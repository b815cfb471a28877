// Places of the tensors between stages while a segment runs.
#pragma once

#include <cstdint>

#include "services/common/plan/stage.h"
#include "services/gpu_worker/stages/exchange_access.h"
#include "services/gpu_worker/stages/model_buffers.h"

namespace tandem::gpu {

// The tensor of a port lies in the exchange region if it crosses to another worker, and in a buffer
// of the lane otherwise.  All addresses are device addresses.
class PortPlaces {
 public:
  // All borrowed; must outlive this.
  PortPlaces(const Segment& segment, uint32_t num_layers, const ExchangeAccess& exchange,
             const LaneBuffers& lane_buffers, uint32_t lane)
      : segment_(segment),
        num_layers_(num_layers),
        exchange_(exchange),
        lane_buffers_(lane_buffers),
        lane_(lane) {}

  // Where the stage at `ordinal` writes a port other than the residual, or reads it.
  uint64_t WrittenAt(Port port, uint32_t ordinal) const;
  uint64_t ReadAt(Port port, uint32_t ordinal) const;
  // The port's area in the exchange region.
  uint64_t Shared(Port port) const {
    return exchange_.Address(lane_, exchange_.layout().port(port));
  }

 private:
  uint64_t LaneAddress(Port port) const;
  bool IsLastWriter(Port port, uint32_t ordinal) const;
  bool IsWrittenBefore(Port port, uint32_t ordinal) const;

  const Segment& segment_;
  const uint32_t num_layers_;
  const ExchangeAccess& exchange_;
  const LaneBuffers& lane_buffers_;
  const uint32_t lane_;
};

}  // namespace tandem::gpu
