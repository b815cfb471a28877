// Packets of the descriptor socket; see region_channel.h.
#pragma once

#include <cstdint>

#include "services/common/rpc/region_channel.h"

namespace tandem::region_wire {

inline constexpr uint32_t kMagic = 0x52444E54;  // "TNDR"
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kMaxMessageBytes = 512;

struct Request {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint8_t token[kLeaseTokenBytes] = {};
  uint32_t kind = 0;
  uint32_t index = 0;
};
static_assert(sizeof(Request) == 48);

struct ReplyHeader {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  int32_t code = 0;
  uint32_t message_bytes = 0;
  uint64_t region_bytes = 0;
};
static_assert(sizeof(ReplyHeader) == 24);

struct Reply {
  ReplyHeader header;
  char message[kMaxMessageBytes] = {};
};

}  // namespace tandem::region_wire
