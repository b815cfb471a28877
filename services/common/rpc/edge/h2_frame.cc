#include "services/common/rpc/edge/h2_frame.h"

#include <algorithm>
#include <cstring>

namespace tandem {
namespace {

void AppendBigEndian(std::string& out, uint32_t value, int num_bytes) {
  for (int i = num_bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

H2FrameScanner::Step H2FrameScanner::Next(std::string_view in) {
  Step step;
  if (num_header_bytes_ < kH2FrameHeaderBytes) {
    step.used = std::min(in.size(), kH2FrameHeaderBytes - num_header_bytes_);
    std::memcpy(header_.data() + num_header_bytes_, in.data(), step.used);
    num_header_bytes_ += step.used;
    if (num_header_bytes_ < kH2FrameHeaderBytes) return step;
    const auto at = [this](size_t i) { return static_cast<uint32_t>(header_[i]); };
    frame_.length = at(0) << 16 | at(1) << 8 | at(2);
    frame_.type = static_cast<H2FrameType>(header_[3]);
    frame_.flags = header_[4];
    frame_.stream = (at(5) & 0x7f) << 24 | at(6) << 16 | at(7) << 8 | at(8);
    payload_left_ = frame_.length;
    step.header = true;
  } else {
    step.payload = true;
    step.used = std::min<size_t>(in.size(), payload_left_);
    payload_left_ -= static_cast<uint32_t>(step.used);
  }
  if (payload_left_ == 0) {
    step.end = true;
    num_header_bytes_ = 0;
  }
  return step;
}

std::string H2FrameHeader(const H2Frame& frame) {
  std::string out;
  AppendBigEndian(out, frame.length, 3);
  out.push_back(static_cast<char>(frame.type));
  out.push_back(static_cast<char>(frame.flags));
  AppendBigEndian(out, frame.stream, 4);
  return out;
}

std::string H2RstStream(uint32_t stream, H2Error error) {
  std::string out =
      H2FrameHeader({.length = 4, .type = H2FrameType::kRstStream, .flags = 0, .stream = stream});
  AppendBigEndian(out, static_cast<uint32_t>(error), 4);
  return out;
}

std::string H2Goaway(uint32_t last_stream, H2Error error, std::string_view why) {
  std::string out = H2FrameHeader({.length = static_cast<uint32_t>(8 + why.size()),
                                   .type = H2FrameType::kGoaway,
                                   .flags = 0,
                                   .stream = 0});
  AppendBigEndian(out, last_stream, 4);
  AppendBigEndian(out, static_cast<uint32_t>(error), 4);
  out += why;
  return out;
}

}  // namespace tandem
