// Decodes the chunked transfer coding (RFC 9112, 7.1) from a stream of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/gateway/http/header_scanner.h"

namespace tandem::gateway {

struct ChunkLimits {
  size_t max_body_bytes = 16 << 20;     // of data
  size_t max_trailer_bytes = 16 << 10;  // names, values and line ends of all trailers
};

// Holds no bytes.  Chunk extensions and trailers are skipped.
class ChunkDecoder {
 public:
  // A chunk's size and its extensions, without the line's end.
  static constexpr size_t kMaxSizeLineBytes = 1024;

  struct Failure {
    int http_status = 400;  // or 413, 431
    const char* what = nullptr;
  };

  explicit ChunkDecoder(const ChunkLimits& limits);

  // Appends data to `body`.  Returns how many of `bytes` it took: all up to the end of the
  // trailers, or up to the first that is wrong.
  size_t Feed(std::string_view bytes, std::string& body);
  bool done() const { return trailers_.state() == HeaderScanner::State::kWhole; }
  const std::optional<Failure>& failure() const { return failure_; }

 private:
  enum class At {
    kSize,      // a size line's first digit is to come
    kMoreSize,  // a digit, or what ends the size
    kBlank,     // after a blank that only an extension may follow
    kExtension,
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kTrailers,
  };
  void TakeFraming(char c);
  void TakeDigit(uint64_t digit);
  void Fail(int http_status, const char* what) { failure_ = {http_status, what}; }

  At at_ = At::kSize;
  uint64_t body_left_;       // bytes of data that may still be announced
  uint64_t chunk_left_ = 0;  // of this chunk's data
  size_t line_bytes_ = 0;
  HeaderScanner trailers_;
  std::optional<Failure> failure_;
};

}  // namespace tandem::gateway
