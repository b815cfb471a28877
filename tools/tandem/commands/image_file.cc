#include "tools/tandem/commands/image_file.h"

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{20} << 20;  // PictureDecoderOptions::max_file_bytes

}  // namespace

absl::Status AddImageFile(const std::string& path, v1::ChatMessage& message) {
  std::error_code error;
  const uint64_t num_bytes = std::filesystem::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), path);
  if (num_bytes == 0 || num_bytes > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d bytes, a picture has 1 to %d MiB",
                                                      path, num_bytes, kMaxBytes >> 20));
  }
  std::ifstream file(path, std::ios::binary);
  std::string data{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (data.size() != num_bytes) return absl::ErrnoToStatus(errno == 0 ? EIO : errno, path);
  message.add_images()->set_data(std::move(data));
  return absl::OkStatus();
}

}  // namespace tandem
