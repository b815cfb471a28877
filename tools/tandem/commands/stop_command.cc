#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tools/tandem/address.h"
#include "tools/tandem/commands/command.h"
#include "tools/tandem/serve/runtime_lock.h"

namespace tandem {
namespace {

// As of `systemctl is-active` and init scripts.
constexpr int kExitNotRunning = 3;
// The supervisor takes signals that come within a second for one.
constexpr absl::Duration kSecondSignalAfter = absl::Milliseconds(1200);

struct StopFlags {
  std::string runtime_dir = DefaultRuntimeDir();
  double timeout_seconds = 60;
  bool now = false;
};

// Whether that process lets go of the directory in time.
bool AwaitEnd(const StopFlags& flags, pid_t pid, absl::Duration patience) {
  const absl::Time until = absl::Now() + patience;
  while (true) {
    const auto serve = FindServe(flags.runtime_dir);
    // One that ends may be seen without its file.
    if (serve.ok() && (!serve->has_value() || (*serve)->pid != pid)) return true;
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
}

int NotRunning(const StopFlags& flags) {
  const bool system = ::access(kSystemGatewaySocket, F_OK) == 0;
  std::fprintf(stderr, "tandem: not running (runtime directory %s)%s\n", flags.runtime_dir.c_str(),
               system ? "; `systemctl stop tandem.target` ends the system's services" : "");
  return kExitNotRunning;
}

int Stop(const StopFlags& flags) {
  const auto found = FindServe(flags.runtime_dir);
  if (!found.ok()) return Fail(found.status());
  const std::optional<RunningServe>& serve = *found;
  if (!serve.has_value() || serve->pid <= 0) return NotRunning(flags);
  std::fprintf(stderr, "stopping tandem serve, pid %d: %s\n", serve->pid,
               flags.now ? "requests are cut off" : "running requests have 30 s to end");
  if (const absl::Status status = serve->Signal(SIGTERM); !status.ok()) return Fail(status);
  if (flags.now && !AwaitEnd(flags, serve->pid, kSecondSignalAfter)) {
    serve->Signal(SIGTERM).IgnoreError();  // it has ended meanwhile
  }
  if (!AwaitEnd(flags, serve->pid, absl::Seconds(flags.timeout_seconds))) {
    return Fail(absl::DeadlineExceededError(
        absl::StrFormat("pid %d still runs after %g s: `tandem stop --now` cuts its requests off",
                        serve->pid, flags.timeout_seconds)));
  }
  std::fprintf(stderr, "stopped\n");
  return 0;
}

}  // namespace

std::function<int()> AddStopCommand(CLI::App& app) {
  auto flags = std::make_shared<StopFlags>();
  CLI::App* command =
      app.add_subcommand("stop", "Drain and end the cluster of `tandem serve`; waits for its end");
  command->add_option("--runtime-dir", flags->runtime_dir, "That of `tandem serve`")
      ->capture_default_str();
  command->add_option("--timeout", flags->timeout_seconds, "Seconds to wait until it has ended")
      ->check(CLI::Range(0.0, 86400.0))
      ->capture_default_str();
  command->add_flag("--now", flags->now, "Cut running requests off");
  return [flags] { return Stop(*flags); };
}

}  // namespace tandem
