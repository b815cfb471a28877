#include "services/common/plan/segment_cut.h"

#include <algorithm>
#include <iterator>

#include "services/common/base/check.h"

namespace tandem {
namespace {

constexpr uint32_t kNoSegment = UINT32_MAX;

// A port read before it is written in the segment, and last written elsewhere, is an input
// here and an output where it was written.
void SetPorts(std::vector<Segment>& segments, uint32_t num_layers) {
  uint32_t writer[kNumPorts];
  std::fill(std::begin(writer), std::end(writer), kNoSegment);
  for (Segment& segment : segments) {
    for (uint32_t s = segment.first_ordinal; s <= segment.last_ordinal; ++s) {
      const StageKind kind = StageAt(s, num_layers).kind;
      for (int bit = 0; bit < kNumPorts; ++bit) {
        const PortMask port = 1u << bit;
        if ((InputsOf(kind) & port) != 0) {
          TANDEM_CHECK(writer[bit] != kNoSegment);
          Segment& source = segments[writer[bit]];
          if (source.worker != segment.worker) {
            source.outputs |= port;
            segment.inputs |= port;
          }
        }
        if ((OutputsOf(kind) & port) != 0) writer[bit] = segment.index;
      }
    }
  }
}

}  // namespace

std::vector<Segment> CutSegments(std::span<const uint32_t> owner, uint32_t num_layers) {
  TANDEM_CHECK(owner.size() == NumStages(num_layers));
  std::vector<Segment> segments;
  for (uint32_t s = 0; s < owner.size(); ++s) {
    if (s > 0 && owner[s] == owner[s - 1]) {
      segments.back().last_ordinal = s;
      continue;
    }
    segments.push_back({.index = static_cast<uint32_t>(segments.size()),
                        .worker = owner[s],
                        .first_ordinal = s,
                        .last_ordinal = s});
  }
  SetPorts(segments, num_layers);
  return segments;
}

}  // namespace tandem
