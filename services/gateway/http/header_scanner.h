// Finds the end of a request's header, or of a chunked body's trailers, as the bytes come.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem::gateway {

// Stricter than RFC 9112 requires: every line ends with CR LF, no field is folded, and values have
// no control characters except tabs.  So all later parsers see the same lines.
class HeaderScanner {
 public:
  enum class Begin { kRequestLine, kFields };
  enum class State { kMore, kWhole, kMalformed, kTooLong };

  // Up to `max_bytes`, the empty line at the end included.
  HeaderScanner(Begin begin, size_t max_bytes);

  // Takes bytes up to the empty line's end, or up to the first that is wrong, and returns how many.
  size_t Feed(std::string_view bytes);
  State state() const { return state_; }

 private:
  enum class At { kRequestLine, kLine, kName, kValue, kLineEnd, kLastLineEnd };
  bool Take(char c);
  bool TakeRequestLine(char c);

  const size_t max_bytes_;
  State state_ = State::kMore;
  At at_;
  size_t num_bytes_ = 0;
  size_t num_blanks_ = 0;    // in the request line
  bool after_blank_ = true;  // after a blank, or at the start of the line
};

}  // namespace tandem::gateway
