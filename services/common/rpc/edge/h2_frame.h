// HTTP/2 frames (RFC 9113, section 4): a scanner for bytes that come in pieces, and the few frames
// that the edge writes itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

inline constexpr std::string_view kH2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
inline constexpr size_t kH2FrameHeaderBytes = 9;
// The default limit.  gRPC announces no higher one with its BDP probe off.
inline constexpr uint32_t kH2MaxFrameBytes = 16384;

enum class H2FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoaway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

inline constexpr uint8_t kH2EndStream = 0x1;
inline constexpr uint8_t kH2Ack = 0x1;
inline constexpr uint8_t kH2EndHeaders = 0x4;

enum class H2Error : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kFrameSizeError = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kEnhanceYourCalm = 11,
};

struct H2Frame {
  uint32_t length = 0;  // of the payload
  H2FrameType type = H2FrameType::kData;
  uint8_t flags = 0;
  uint32_t stream = 0;  // without the reserved bit

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};

// Reads frame headers and skips payloads.  Thread-compatible.
class H2FrameScanner {
 public:
  struct Step {
    size_t used = 0;       // bytes of the input taken
    bool header = false;   // frame() has just become known
    bool payload = false;  // they are of frame()'s payload
    bool end = false;      // frame() has just ended
  };
  // Takes bytes up to the end of a frame's header, or of its payload.  `in`: not empty.
  Step Next(std::string_view in);
  // The frame that is being read, or the last one.
  const H2Frame& frame() const { return frame_; }
  bool between_frames() const { return num_header_bytes_ == 0; }

 private:
  std::array<uint8_t, kH2FrameHeaderBytes> header_ = {};
  size_t num_header_bytes_ = 0;
  uint32_t payload_left_ = 0;
  H2Frame frame_;
};

// A frame's 9 bytes.
std::string H2FrameHeader(const H2Frame& frame);
std::string H2RstStream(uint32_t stream, H2Error error);
// `last_stream`: the last stream that may have been processed; `why`: text for people.
std::string H2Goaway(uint32_t last_stream, H2Error error, std::string_view why);

}  // namespace tandem
