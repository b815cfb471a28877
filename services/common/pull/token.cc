#include "services/common/pull/token.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace tandem::pull {
namespace {

constexpr size_t kMaxBytes = 1024;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<Token> Check(std::string text, const std::string& origin) {
  absl::StripAsciiWhitespace(&text);
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (text.size() > kMaxBytes || !plain) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s holds no token: a token is one word of plain characters", origin));
  }
  return Token{std::move(text), origin};
}

std::optional<std::string> Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(kMaxBytes + 64, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

}  // namespace

absl::StatusOr<Token> FindToken(const std::string& file) {
  if (!file.empty()) {
    auto text = Read(file);
    if (!text.has_value()) {
      return absl::NotFoundError(absl::StrFormat("token file %s cannot be read", file));
    }
    return Check(*std::move(text), file);
  }
  if (const std::string value = Variable("HF_TOKEN"); !value.empty()) {
    return Check(value, "HF_TOKEN");
  }
  std::vector<std::string> paths;
  if (const std::string path = Variable("HF_TOKEN_PATH"); !path.empty()) paths.push_back(path);
  if (const std::string home = Variable("HF_HOME"); !home.empty()) {
    paths.push_back(home + "/token");
  } else if (const std::string user = Variable("HOME"); !user.empty()) {
    paths.push_back(user + "/.cache/huggingface/token");
  }
  for (const std::string& path : paths) {
    if (auto text = Read(path)) return Check(*std::move(text), path);
  }
  return Token{};
}

}  // namespace tandem::pull
