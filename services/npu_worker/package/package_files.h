// The files of a package.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::npu {

// The whole file.  NOT_FOUND: it is not there; INVALID_ARGUMENT: empty, or longer than `max_bytes`.
absl::StatusOr<std::string> ReadPackageFile(const std::filesystem::path& path, uint64_t max_bytes);

// Whether it is an xclbin of the length that it says: XRT takes a container's own word for it.
// INVALID_ARGUMENT names the file and what it is instead.
absl::Status CheckXclbin(const std::string& path);

}  // namespace tandem::npu
