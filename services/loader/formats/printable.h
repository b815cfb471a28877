// Text from untrusted files, made fit for messages and tables.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem::loader {

// `text` with control characters and bytes that are no UTF-8 as \n or \xNN, cut with "..." at a
// whole character once `max_length` bytes are there.  The result is UTF-8 on one line, and
// printing it again changes nothing.
std::string Printable(std::string_view text, size_t max_length);
// Bytes of a key, and of a value, of a file's metadata that are shown.
inline constexpr size_t kMaxPrintedMetadata = 100;

}  // namespace tandem::loader
