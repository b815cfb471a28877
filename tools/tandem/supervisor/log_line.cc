#include "tools/tandem/supervisor/log_line.h"

#include <cstddef>

namespace tandem {
namespace {

constexpr std::string_view kJsonBegin = "{\"time\":\"";
constexpr std::string_view kTimePattern = "dddd-dd-ddTdd:dd:dd.ddd";

bool Matches(std::string_view text, std::string_view pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    if (pattern[i] == 'd' ? !digit : text[i] != pattern[i]) return false;
  }
  return true;
}

// Up to the closing quote, with quotes and backslashes as they were.
std::string Unquoted(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size() && text[i] != '"'; ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    if (escaped && text[i + 1] == 'n') {
      plain += ' ';
      ++i;
      continue;
    }
    if (escaped && (text[i + 1] == '"' || text[i + 1] == '\\')) ++i;
    plain += text[i];
  }
  return plain;
}

}  // namespace

std::string_view LogTime(std::string_view line) {
  if (line.starts_with(kJsonBegin)) line.remove_prefix(kJsonBegin.size());
  if (line.size() < kTimePattern.size() || !Matches(line, kTimePattern)) return {};
  return line.substr(0, kTimePattern.size());
}

std::string LogReason(std::string_view line) {
  for (const std::string_view field : {" reason=", ",\"reason\":"}) {
    const size_t at = line.find(field);
    if (LogTime(line).empty() || at == std::string_view::npos) continue;
    const std::string_view value = line.substr(at + field.size());
    if (value.starts_with('"')) return Unquoted(value.substr(1));
    return std::string(value.substr(0, value.find(' ')));
  }
  return std::string(line);
}

}  // namespace tandem
