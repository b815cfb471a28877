#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/address.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/serve/runtime_lock.h"
#include "tools/tandem/supervisor/log_line.h"
#include "tools/tandem/supervisor/log_reader.h"

namespace tandem {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(200);

struct LogsFlags {
  std::vector<std::string> services;
  std::string runtime_dir = DefaultRuntimeDir();
  std::string log_dir;
  size_t num_lines = 100;
  bool follow = false;
};

// The log's own lines name their service; others are given its name.
void Print(const std::vector<LogEntry>& entries) {
  for (const LogEntry& entry : entries) {
    if (LogTime(entry.text).empty()) std::printf("%s: ", entry.service.c_str());
    std::printf("%s\n", entry.text.c_str());
  }
}

absl::StatusOr<std::string> LogDirOf(const LogsFlags& flags) {
  if (!flags.log_dir.empty()) return flags.log_dir;
  TANDEM_ASSIGN_OR_RETURN(const auto serve, FindServe(flags.runtime_dir));
  return serve.has_value() && !serve->log_dir.empty() ? serve->log_dir
                                                      : flags.runtime_dir + "/logs";
}

absl::Status ShowLogs(const LogsFlags& flags) {
  TANDEM_ASSIGN_OR_RETURN(const std::string log_dir, LogDirOf(flags));
  absl::StatusOr<LogReader> reader = LogReader::Open(log_dir, flags.services);
  if (!reader.ok()) {
    const bool system = ::access(kSystemGatewaySocket, F_OK) == 0;
    return absl::NotFoundError(
        absl::StrFormat("%s%s", std::string(reader.status().message()),
                        system ? "; `journalctl -u 'tandem-*'` has the system's" : ""));
  }
  Print(reader->Last(flags.num_lines));
  while (flags.follow && std::fflush(stdout) == 0) {
    absl::SleepFor(kPollInterval);
    Print(reader->More());
  }
  return absl::OkStatus();
}

}  // namespace

std::function<int()> AddLogsCommand(CLI::App& app) {
  auto flags = std::make_shared<LogsFlags>();
  CLI::App* command =
      app.add_subcommand("logs", "Show what the services of `tandem serve` have logged");
  command->add_option("service", flags->services,
                      "loader, gpu_worker (further ones: gpu_worker1 and on), npu_worker, "
                      "gateway or serve; default: all, by time");
  command->add_option("-n,--lines", flags->num_lines, "Of the last lines, so many")
      ->capture_default_str();
  command->add_flag("-f,--follow", flags->follow, "Go on with lines logged from now on");
  command->add_option("--runtime-dir", flags->runtime_dir, "That of `tandem serve`")
      ->capture_default_str();
  command->add_option("--log-dir", flags->log_dir,
                      "That of `tandem serve`; default: where the one that runs has it");
  return [flags] {
    const absl::Status status = ShowLogs(*flags);
    return status.ok() ? 0 : Fail(status);
  };
}

}  // namespace tandem
