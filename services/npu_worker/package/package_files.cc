#include "services/npu_worker/package/package_files.h"

#include <cstring>
#include <fstream>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::npu {

absl::StatusOr<std::string> ReadPackageFile(const std::filesystem::path& path, uint64_t max_bytes) {
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(path, error);
  if (error) {
    return absl::NotFoundError(absl::StrFormat("%s: %s", path.string(), error.message()));
  }
  if (bytes == 0 || bytes > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: %d bytes, must be 1 to %d", path.string(), bytes, max_bytes));
  }
  std::string content(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(content.data(), static_cast<std::streamsize>(bytes));
  if (!file) return absl::InvalidArgumentError(absl::StrFormat("%s: cut short", path.string()));
  return content;
}

absl::Status CheckXclbin(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string content, ReadPackageFile(path, uint64_t{1} << 30));
  constexpr size_t kLengthOffset = 304;  // axlf_header::m_length
  uint64_t length = 0;
  if (content.size() >= kLengthOffset + sizeof(length)) {
    std::memcpy(&length, content.data() + kLengthOffset, sizeof(length));
  }
  if (content.compare(0, 4, "TNPI") == 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: instructions of the emulated NPU (TNPI), which no NPU executes", path));
  }
  if (content.compare(0, 8, std::string("xclbin2\0", 8)) != 0 || length != content.size()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: not an xclbin, or cut short (%d bytes, its header says %d)", path,
                        content.size(), length));
  }
  return absl::OkStatus();
}

}  // namespace tandem::npu
