#include "services/gateway/http/chunk_decoder.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "services/gateway/http/hex_digit.h"

namespace tandem::gateway {

ChunkDecoder::ChunkDecoder(const ChunkLimits& limits)
    : body_left_(limits.max_body_bytes),
      trailers_(HeaderScanner::Begin::kFields, limits.max_trailer_bytes) {}

size_t ChunkDecoder::Feed(std::string_view bytes, std::string& body) {
  size_t used = 0;
  while (used < bytes.size() && !done() && !failure_.has_value()) {
    if (at_ == At::kData) {
      const size_t take = std::min<uint64_t>(chunk_left_, bytes.size() - used);
      body.append(bytes.substr(used, take));
      used += take;
      chunk_left_ -= take;
      if (chunk_left_ == 0) at_ = At::kDataCr;
    } else if (at_ == At::kTrailers) {
      used += trailers_.Feed(bytes.substr(used));
      if (trailers_.state() == HeaderScanner::State::kMalformed) Fail(400, "malformed trailers");
      if (trailers_.state() == HeaderScanner::State::kTooLong)
        Fail(431, "the trailers are too long");
    } else {
      TakeFraming(bytes[used++]);
    }
  }
  return used;
}

void ChunkDecoder::TakeFraming(char c) {
  const bool blank = c == ' ' || c == '\t';
  switch (at_) {
    case At::kSize:
    case At::kMoreSize:
      if (HexValue(c) >= 0) {
        at_ = At::kMoreSize;
        TakeDigit(static_cast<uint64_t>(HexValue(c)));
        break;
      }
      if (at_ == At::kSize || !(blank || c == ';' || c == '\r')) {
        return Fail(400, "a chunk's size is no hexadecimal number");
      }
      if (chunk_left_ > body_left_) return Fail(413, "the body is too long");
      body_left_ -= chunk_left_;
      at_ = blank ? At::kBlank : c == ';' ? At::kExtension : At::kSizeLf;
      break;
    case At::kBlank:
      if (!blank && c != ';') return Fail(400, "malformed chunk extension");
      if (!blank) at_ = At::kExtension;
      break;
    case At::kExtension:
      if (c == '\r') {
        at_ = At::kSizeLf;
      } else if (c != '\t' && absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
        return Fail(400, "malformed chunk extension");
      }
      break;
    case At::kSizeLf:
      if (c != '\n') return Fail(400, "a chunk's size line does not end with CR LF");
      at_ = chunk_left_ == 0 ? At::kTrailers : At::kData;
      line_bytes_ = 0;
      return;
    case At::kDataCr:
      if (c != '\r') return Fail(400, "a chunk goes on past its size");
      at_ = At::kDataLf;
      return;
    case At::kDataLf:
      if (c != '\n') return Fail(400, "a chunk goes on past its size");
      at_ = At::kSize;
      return;
    case At::kData:
    case At::kTrailers:
      return;  // no framing
  }
  if (at_ != At::kSizeLf && ++line_bytes_ > kMaxSizeLineBytes)
    Fail(400, "a chunk's size line is too long");
}

void ChunkDecoder::TakeDigit(uint64_t digit) {
  if (chunk_left_ > std::numeric_limits<uint64_t>::max() / 16) {
    return Fail(400, "a chunk's size goes over 64 bits");
  }
  chunk_left_ = chunk_left_ * 16 + digit;
}

}  // namespace tandem::gateway
