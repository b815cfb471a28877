#include "services/common/base/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

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

void AppendValue(std::string& line, std::string_view value) {
  if (!value.empty() && value.find_first_of(" \"=\n") == std::string_view::npos) {
    line.append(value);
    return;
  }
  line.push_back('"');
  for (char c : value) {
    if (c == '\n') {
      line.append("\\n");
      continue;
    }
    if (c == '"' || c == '\\') line.push_back('\\');
    line.push_back(c);
  }
  line.push_back('"');
}

}  // namespace

void InitLogging(std::string_view service) {
  auto logger = std::make_shared<spdlog::logger>(std::string(service),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e level=%l service=%n %v");
  logger->flush_on(spdlog::level::debug);
  const char* threshold = std::getenv("TANDEM_LOG");
  logger->set_level(threshold != nullptr ? spdlog::level::from_str(threshold)
                                         : spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  auto* logger = spdlog::default_logger_raw();
  if (!logger->should_log(ToSpdlog(level))) return;
  std::string line = "event=";
  AppendValue(line, event);
  for (const auto& [key, value] : fields) {
    line.push_back(' ');
    line.append(key);
    line.push_back('=');
    AppendValue(line, value);
  }
  logger->log(ToSpdlog(level), "{}", line);
}

}  // namespace tandem
