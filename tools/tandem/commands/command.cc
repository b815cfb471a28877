#include "tools/tandem/commands/command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

namespace tandem {

int Fail(const absl::Status& status) {
  std::string message(status.message());
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  std::fprintf(stderr, "tandem: %s (%s)\n", message.c_str(),
               absl::StatusCodeToString(status.code()).c_str());
  return 1;
}

std::string ExecutableDirectory() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace tandem
