// SHA-256 of a file's bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::pull {

// 64 small hexadecimal digits.  `progress` gets the bytes done, every 16 MiB and at the end,
// and returns false to give up: CANCELLED.  UNAVAILABLE: the file cannot be read.
absl::StatusOr<std::string> Sha256OfFile(int fd, uint64_t size,
                                         const std::function<bool(uint64_t)>& progress = nullptr);

}  // namespace tandem::pull
