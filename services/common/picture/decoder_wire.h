// What the gateway and a picture's decoder say to each other: one request, one reply, then the
// decoder ends.
//
//   request = DecodeRequest, with two descriptors: the file's bytes, then room for the pixels
//   reply   = DecodeReply
//
// Both go over a SOCK_SEQPACKET socket pair, a message each.  Both descriptors are memfds whose
// size is sealed.  The pixels are RGB, a byte a channel, rows without padding, upright.  Neither
// side leaves this host, so numbers are in its own byte order.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tandem {

inline constexpr uint32_t kDecoderMagic = 0x31434954;  // "TIC1"
// The decoder's end of the socket pair.
inline constexpr int kDecoderSocket = 0;
inline constexpr uint32_t kBytesPerPixel = 3;
// Of an accepted picture, whatever its pixels: as much as JPEG has.
inline constexpr uint32_t kMaxPictureSide = 65535;

struct DecodeRequest {
  uint32_t magic = kDecoderMagic;
  uint32_t reserved = 0;
  uint64_t input_bytes = 0;
  uint64_t max_pixels = 0;  // the room for pixels has kBytesPerPixel times as many bytes
};

struct DecodeReply {
  enum Code : uint32_t { kDecoded = 0, kRefused = 1 };
  uint32_t magic = kDecoderMagic;
  uint32_t code = kRefused;
  uint32_t width = 0;  // of the upright picture
  uint32_t height = 0;
  char message[240] = {};  // why it was refused; ends with a NUL
};
static_assert(std::is_trivially_copyable_v<DecodeRequest> && sizeof(DecodeRequest) == 24);
static_assert(std::is_trivially_copyable_v<DecodeReply> && sizeof(DecodeReply) == 256);

}  // namespace tandem
