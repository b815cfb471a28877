// Structured logging: one `key=value` line per event on standard error, over spdlog.
//
//   Log(LogLevel::kInfo, "model loaded", {{"model", name}, {"bytes", absl::StrFormat("%d", n)}});
//
// Thread-safe.  Nothing per token is logged, and never a prompt.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Names the service in every line and sets the threshold from TANDEM_LOG
// (debug|info|warning|error, default info).  Call once, first thing in main.
void InitLogging(std::string_view service);

using LogField = std::pair<std::string_view, std::string>;

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

inline void LogInfo(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kInfo, event, fields);
}
inline void LogWarning(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kWarning, event, fields);
}
inline void LogError(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kError, event, fields);
}

}  // namespace tandem
