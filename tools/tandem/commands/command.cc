#include "tools/tandem/commands/command.h"

#include <cstdio>
#include <filesystem>

namespace tandem {

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tandem: %s (%s)\n", std::string(status.message()).c_str(),
               absl::StatusCodeToString(status.code()).c_str());
  return 1;
}

std::string ExecutableDirectory() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace tandem
