#include "tools/tandem/commands/command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/cord.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/style.h"

namespace tandem {
namespace {

constexpr char kUsageMark[] = "tandem/usage";

}  // namespace

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

int Fail(const absl::Status& status) {
  std::string message(status.message());
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  if (IsFromGateway(status)) message += " (" + absl::StatusCodeToString(status.code()) + ")";
  std::fflush(stdout);
  std::fprintf(stderr, "%s %s\n", Styled(stderr, Style::kBad, "tandem:").c_str(), message.c_str());
  return status.GetPayload(kUsageMark).has_value() ? kExitUsage : kExitFailure;
}

std::string ExecutableDirectory() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace tandem
