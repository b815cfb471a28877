#include "services/gateway/http/header_scanner.h"

#include "absl/strings/ascii.h"

namespace tandem::gateway {
namespace {

// tchar of RFC 9110, 5.6.2.
bool IsTokenCharacter(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         kOthers.find(c) != std::string_view::npos;
}

bool IsControl(char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }

}  // namespace

HeaderScanner::HeaderScanner(Begin begin, size_t max_bytes)
    : max_bytes_(max_bytes), at_(begin == Begin::kRequestLine ? At::kRequestLine : At::kLine) {}

size_t HeaderScanner::Feed(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && state_ == State::kMore) {
    if (!Take(bytes[used++])) state_ = State::kMalformed;
    if (++num_bytes_ == max_bytes_ && state_ == State::kMore) state_ = State::kTooLong;
  }
  return used;
}

// False: `c` cannot be there.
bool HeaderScanner::Take(char c) {
  switch (at_) {
    case At::kRequestLine:
      return TakeRequestLine(c);
    case At::kLine:
      at_ = c == '\r' ? At::kLastLineEnd : At::kName;
      return c == '\r' || IsTokenCharacter(c);
    case At::kName:
      if (c == ':') at_ = At::kValue;
      return c == ':' || IsTokenCharacter(c);
    case At::kValue:
      if (c == '\r') at_ = At::kLineEnd;
      return c == '\r' || c == '\t' || !IsControl(c);
    case At::kLineEnd:
      at_ = At::kLine;
      return c == '\n';
    case At::kLastLineEnd:
      if (c == '\n') state_ = State::kWhole;
      return c == '\n';
  }
  return false;
}

// Three words, a blank between each; what they say is looked at when the header is whole.
bool HeaderScanner::TakeRequestLine(char c) {
  if (c == '\r') {
    at_ = At::kLineEnd;
    return num_blanks_ == 2 && !after_blank_;
  }
  const bool blank = c == ' ';
  if (blank && (after_blank_ || ++num_blanks_ > 2)) return false;
  after_blank_ = blank;
  return num_blanks_ == 0 && !blank ? IsTokenCharacter(c) : !IsControl(c);
}

}  // namespace tandem::gateway
