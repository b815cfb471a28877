// Structured logging: one line per event on standard error, `key=value` or JSON, over spdlog.
//
//   Log(LogLevel::kInfo, "model loaded", {{"model", name}, {"bytes", n}, {"seconds", LogValue(s,
//   2)}});
//
//   2026-01-31T12:00:00.000 level=info service=loader event="model loaded" model=demo bytes=7 ...
//   {"time":"2026-01-31T12:00:00.000+01:00","level":"info","service":"loader",
//    "event":"model loaded","model":"demo","bytes":7,"seconds":0.25}               (one line)
//
// A line about one request has its `request_id`, and `trace_id` where it is traced.
// Thread-safe.  Nothing per token is logged, and never a prompt.
#pragma once

#include <concepts>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Names the service in every line and sets the threshold from TANDEM_LOG
// (debug|info|warning|error, default info).  Call once, first thing in main.
void InitLogging(std::string_view service);

enum class LogFormat { kText, kJson };
// Of all lines from now on, whether InitLogging comes before or after.
void SetLogFormat(LogFormat format);

// Every line from now on also goes to `fd`, as it stands on standard error; -1: no longer.
// Borrowed. Not while other threads log.
void CopyLogTo(int fd);

// Text, or a number or a boolean, which JSON has without quotes.
class LogValue {
 public:
  LogValue(std::string text) : text_(std::move(text)) {}  // NOLINT: implicit
  LogValue(const char* text) : text_(text) {}             // NOLINT: implicit
  LogValue(std::string_view text) : text_(text) {}        // NOLINT: implicit
  template <std::integral Integer>
  LogValue(Integer number) : text_(Digits(number)), bare_(true) {}  // NOLINT: implicit
  // Rounded to so many decimals.  NaN and infinity are null in JSON.
  LogValue(double number, int decimals);

  const std::string& text() const { return text_; }
  // Whether JSON has it without quotes.
  bool bare() const { return bare_; }

 private:
  template <std::integral Integer>
  static std::string Digits(Integer number) {
    if constexpr (std::same_as<Integer, bool>) {
      return number ? "true" : "false";
    } else {
      return std::to_string(number);
    }
  }

  std::string text_;
  bool bare_ = false;
};

using LogField = std::pair<std::string_view, LogValue>;

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});
void Log(LogLevel level, std::string_view event, std::span<const LogField> fields);
// Whether a line of that level would be written.
bool LogEnabled(LogLevel level);
// The part of a line that is not time, level and service.  Exposed for tests.
std::string FormatLogFields(LogFormat format, std::string_view event,
                            std::span<const LogField> fields);

inline void LogDebug(std::string_view event, std::initializer_list<LogField> fields = {}) {
  Log(LogLevel::kDebug, event, fields);
}
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
