#include "services/common/base/logging.h"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "absl/strings/str_format.h"
#include "services/common/base/utf8.h"

namespace tandem {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// With quotes and what cannot be in a line escaped, as JSON has it.
void AppendEscaped(std::string& line, std::string_view value) {
  for (const char c : value) {
    if (c == '\n') {
      line.append("\\n");
    } else if (c == '"' || c == '\\') {
      line.push_back('\\');
      line.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      line.append(absl::StrFormat("\\u%04x", static_cast<int>(c)));
    } else {
      line.push_back(c);
    }
  }
}

void AppendQuoted(std::string& line, std::string_view value) {
  line.push_back('"');
  AppendEscaped(line, value);
  line.push_back('"');
}

void AppendValue(std::string& line, std::string_view value) {
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '"' && c != '=' && c != 0x7f;
  });
  if (plain) {
    line.append(value);
  } else {
    AppendQuoted(line, value);
  }
}

// JSON is UTF-8.
std::string Utf8Of(std::string_view value) {
  Utf8Stream stream;
  std::string text;
  stream.Append(value, text);
  stream.Finish(text);
  return text;
}

std::atomic<LogFormat> format_in_force = LogFormat::kText;

void ApplyFormat(spdlog::logger& logger) {
  logger.set_pattern(format_in_force == LogFormat::kJson
                         ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","service":"%n",%v})"
                         : "%Y-%m-%dT%H:%M:%S.%e level=%l service=%n %v");
}

class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit DescriptorSink(int fd) : fd_(fd) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    (void)!::write(fd_, line.data(), line.size());
  }
  void flush_() override {}

  const int fd_;
};

}  // namespace

void CopyLogTo(int fd) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  logger.sinks().resize(1);
  if (fd >= 0) logger.sinks().push_back(std::make_shared<DescriptorSink>(fd));
  ApplyFormat(logger);
}

LogValue::LogValue(double number, int decimals)
    : text_(std::isfinite(number) ? absl::StrFormat("%.*f", decimals, number) : "null"),
      bare_(true) {}

void InitLogging(std::string_view service) {
  auto logger = std::make_shared<spdlog::logger>(std::string(service),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  ApplyFormat(*logger);
  logger->flush_on(spdlog::level::debug);
  const char* threshold = std::getenv("TANDEM_LOG");
  logger->set_level(threshold != nullptr ? spdlog::level::from_str(threshold)
                                         : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void SetLogFormat(LogFormat format) {
  format_in_force = format;
  ApplyFormat(*spdlog::default_logger_raw());
}

std::string FormatLogFields(LogFormat format, std::string_view event,
                            std::span<const LogField> fields) {
  std::string line;
  if (format == LogFormat::kJson) {
    line.append("\"event\":");
    AppendQuoted(line, Utf8Of(event));
    for (const auto& [key, value] : fields) {
      line.push_back(',');
      AppendQuoted(line, key);
      line.push_back(':');
      if (value.bare()) {
        line.append(value.text());
      } else {
        AppendQuoted(line, Utf8Of(value.text()));
      }
    }
    return line;
  }
  line.append("event=");
  AppendValue(line, event);
  for (const auto& [key, value] : fields) {
    line.push_back(' ');
    line.append(key);
    line.push_back('=');
    AppendValue(line, value.text());
  }
  return line;
}

bool LogEnabled(LogLevel level) {
  return spdlog::default_logger_raw()->should_log(ToSpdlog(level));
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  Log(level, event, std::span<const LogField>(fields.begin(), fields.size()));
}

void Log(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  if (!LogEnabled(level)) return;
  spdlog::default_logger_raw()->log(ToSpdlog(level), "{}",
                                    FormatLogFields(format_in_force, event, fields));
}

}  // namespace tandem
