#include "services/common/rpc/library_logs.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"

namespace tandem {
namespace {

void LogLine(LogLevel level, std::string_view library, std::string_view file, int line,
             std::string_view message) {
  if (!LogEnabled(level)) return;
  static LineLimit* const limit = new LineLimit;  // used until the process has ended
  const auto left_out = limit->Admit(absl::Now());
  if (!left_out.has_value()) return;
  const size_t slash = file.rfind('/');
  const std::string_view name = slash == file.npos ? file : file.substr(slash + 1);
  const std::string at = absl::StrFormat("%s:%d", std::string(name), line);
  if (*left_out == 0) {
    Log(level, library, {{"at", at}, {"message", message}});
  } else {
    Log(level, library, {{"at", at}, {"message", message}, {"left_out", *left_out}});
  }
}

void LogGrpc(gpr_log_func_args* args) {
  const LogLevel level = args->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kWarning
                         : args->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                   : LogLevel::kDebug;
  LogLine(level, "grpc", args->file, args->line, args->message);
}

void LogProtobuf(google::protobuf::LogLevel severity, const char* file, int line,
                 const std::string& message) {
  const LogLevel level = severity == google::protobuf::LOGLEVEL_FATAL  ? LogLevel::kError
                         : severity == google::protobuf::LOGLEVEL_INFO ? LogLevel::kInfo
                                                                       : LogLevel::kWarning;
  LogLine(level, "protobuf", file, line, message);
}

}  // namespace

std::optional<uint64_t> LineLimit::Admit(absl::Time now) {
  MutexLock lock(mutex_);
  if (now - begin_ >= kLibraryLinesPeriod) {
    begin_ = now;
    lines_ = 0;
  }
  if (lines_ == kLibraryLines) {
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  return std::exchange(left_out_, 0);
}

void RouteLibraryLogs() {
  gpr_set_log_function(&LogGrpc);
  google::protobuf::SetLogHandler(&LogProtobuf);
}

void SilenceLibraryLogs() {
  gpr_set_log_function([](gpr_log_func_args*) {});
  google::protobuf::SetLogHandler(nullptr);
}

}  // namespace tandem
