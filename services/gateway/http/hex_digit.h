// A hexadecimal digit's value.
#pragma once

#include "absl/strings/ascii.h"

namespace tandem::gateway {

// Of either case; -1: no hexadecimal digit.
inline int HexValue(char c) {
  if (absl::ascii_isdigit(static_cast<unsigned char>(c))) return c - '0';
  if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return -1;
  return absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
}

}  // namespace tandem::gateway
