#include "services/common/base/client_text.h"

#include <algorithm>

#include "absl/strings/cord.h"

namespace tandem {
namespace {

constexpr char kHex[] = "0123456789abcdef";

// Appends `text` byte by byte as `form` writes each, until `max_bytes` are there.
template <class Form>
std::string Bounded(std::string_view text, size_t max_bytes, const Form& form) {
  std::string out;
  out.reserve(std::min(text.size(), max_bytes + 3));
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const char escape[] = {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    const bool visible = byte >= 0x20 && byte < 0x7F;
    std::string_view written = form(c);
    if (written.empty()) {
      written = visible ? std::string_view(&c, 1) : std::string_view(escape, sizeof(escape));
    }
    if (out.size() + written.size() > max_bytes) return out + "...";
    out += written;
  }
  return out;
}

bool IsPathByte(char c) {
  return static_cast<unsigned char>(c) > 0x20 &&
         std::string_view("'\"<>()[]{},;").find(c) == std::string_view::npos;
}

// Codes that say that a request cannot be served as it is; their messages show what the client sent.
bool IsOfTheRequest(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string ClientText(std::string_view text, size_t max_bytes) {
  return Bounded(text, max_bytes, [](char c) { return std::string_view(c == '\\' ? "\\\\" : ""); });
}

std::string FitMessage(std::string_view message, size_t max_bytes) {
  return Bounded(message, max_bytes,
                 [](char c) { return std::string_view(c == '\n' || c == '\t' ? " " : ""); });
}

std::string WithoutFolders(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    // A path begins where no path, word or address goes on.
    const char before = i == 0 ? ' ' : text[i - 1];
    const bool begins = text[i] == '/' && (!IsPathByte(before) || before == ':' || before == '=') &&
                        (text.substr(i, 2) != "//" || text.substr(i, 3) == "///");
    if (!begins) {
      out += text[i++];
      continue;
    }
    // In quotes it may have blanks.
    const bool quoted = before == '\'' || before == '"';
    size_t end = i;
    while (end < text.size() && (quoted ? text[end] != before : IsPathByte(text[end]))) ++end;
    const std::string_view path = text.substr(i, end - i);
    const bool is_method = path.starts_with("/tandem.") || path.starts_with("/grpc.");
    out += is_method ? path : path.substr(path.rfind('/') + 1);
    i = end;
  }
  return out;
}

absl::Status ForClients(const absl::Status& status) {
  if (status.ok()) return status;
  const std::string_view message(status.message().data(), status.message().size());
  const std::string fit =
      FitMessage(IsOfTheRequest(status.code()) ? std::string(message) : WithoutFolders(message));
  if (fit == message) return status;
  absl::Status shown(status.code(), fit);
  status.ForEachPayload([&shown](absl::string_view url, const absl::Cord& payload) {
    shown.SetPayload(url, payload);
  });
  return shown;
}

}  // namespace tandem
