// Frames as clients and servers send them, for tests.
#pragma once

#include <cstdint>
#include <string>

#include "services/common/rpc/edge/h2_frame.h"

namespace tandem::testing {

inline std::string Frame(H2FrameType type, uint8_t flags, uint32_t stream,
                         const std::string& payload = "") {
  return H2FrameHeader({.length = static_cast<uint32_t>(payload.size()),
                        .type = type,
                        .flags = flags,
                        .stream = stream}) +
         payload;
}
inline std::string Preface() {
  return std::string(kH2Preface) + Frame(H2FrameType::kSettings, 0, 0);
}
inline std::string Headers(uint32_t stream, bool end_stream = false,
                           const std::string& block = "block") {
  return Frame(H2FrameType::kHeaders, kH2EndHeaders | (end_stream ? kH2EndStream : 0), stream,
               block);
}
inline std::string Data(uint32_t stream, size_t num_bytes, bool end_stream = false) {
  return Frame(H2FrameType::kData, end_stream ? kH2EndStream : 0, stream,
               std::string(num_bytes, 'd'));
}
inline std::string Rst(uint32_t stream) { return H2RstStream(stream, H2Error::kCancel); }

}  // namespace tandem::testing
