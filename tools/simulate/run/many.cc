#include "tools/simulate/run/many.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/check.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/logging.h"
#include "services/common/base/unique_fd.h"
#include "tools/simulate/run/shapes.h"
#include "tools/simulate/run/simulation.h"

namespace tandem::simulate {
namespace {

// What a child writes about its seed, before a line for each violation.
struct Sums {
  uint64_t answered = 0, refused = 0, ended = 0, cancelled = 0;
  Reached reached;
};

std::string ToText(const Findings& findings) {
  const Reached& r = findings.reached;
  return absl::StrFormat("%d %d %d %d %d %d %d %d %d %d %d\n%s", findings.num_answered,
                         findings.num_refused, findings.num_ended, findings.num_cancelled, r.steps,
                         r.recoveries, r.moved, r.preemptions, r.cached_tokens, r.rejected_guesses,
                         r.drafted_tokens, absl::StrJoin(findings.violations, "\n"));
}

// Adds what a child wrote; false: it wrote nothing.
bool Add(const std::string& text, Sums& sums) {
  std::istringstream words(text.substr(0, text.find('\n')));
  Sums one;
  Reached& r = one.reached;
  words >> one.answered >> one.refused >> one.ended >> one.cancelled >> r.steps >> r.recoveries >>
      r.moved >> r.preemptions >> r.cached_tokens >> r.rejected_guesses >> r.drafted_tokens;
  if (!words) return false;
  sums.answered += one.answered;
  sums.refused += one.refused;
  sums.ended += one.ended;
  sums.cancelled += one.cancelled;
  sums.reached += r;
  return true;
}

void Print(const Sums& sums) {
  const Reached& r = sums.reached;
  const std::string text = absl::StrFormat(
      "requests: %d answered, %d ended with errors, %d refused, %d cancelled\n"
      "%d steps, %d recoveries, %d requests moved, %d preempted, %d tokens of prompts cached, "
      "%d guesses rejected, %d tokens drafted",
      sums.answered, sums.ended, sums.refused, sums.cancelled, r.steps, r.recoveries, r.moved,
      r.preemptions, r.cached_tokens, r.rejected_guesses, r.drafted_tokens);
  std::printf("%s\n", text.c_str());
}

// One processor is enough for threads that run one at a time, and spares moving them.
void StayOnOneProcessor(uint64_t seed) {
  cpu_set_t all;
  if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
  auto skip = static_cast<int>(seed % static_cast<uint64_t>(std::max(1, CPU_COUNT(&all))));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

// In a child: runs a seed and writes what it found to `output`.
[[noreturn]] void RunOne(uint64_t seed, uint32_t seconds, int output) {
  ::alarm(seconds);
  StayOnOneProcessor(seed);
  // Logs of expected faults.
  TANDEM_CHECK(std::freopen("/dev/null", "w", stderr) != nullptr);
  InitLogging("gateway");
  const auto end = [output](const Findings& findings) {
    const std::string text = ToText(findings);
    TANDEM_CHECK(::write(output, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  };
  Simulate(
      DrawScenario(seed), [](const std::string& /*text*/) {}, end);
  ::_exit(kExitSuccess);
}

struct Child {
  uint64_t seed = 0;
  UniqueFd output;  // a memfd
};

std::string ReadAll(int fd) {
  std::string text(static_cast<size_t>(std::max<off_t>(0, ::lseek(fd, 0, SEEK_END))), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

}  // namespace

int RunMany(const ManyOptions& options) {
  // Once, for all children.
  TheSchema();
  ThePattern();
  const absl::Time begin = absl::Now();
  std::map<pid_t, Child> children;
  Sums sums;
  uint64_t num_failed = 0, num_run = 0, next = options.first_seed;
  const uint64_t last = options.first_seed + options.num_seeds;
  bool stopping = false;
  while (next < last || !children.empty()) {
    while (next < last && !stopping && children.size() < options.num_jobs) {
      Child child{.seed = next++, .output = UniqueFd(::memfd_create("findings", MFD_CLOEXEC))};
      const pid_t pid = ::fork();
      TANDEM_CHECK(pid >= 0);
      if (pid == 0) RunOne(child.seed, options.seconds, child.output.get());
      children[pid] = std::move(child);
    }
    if (children.empty()) break;
    int status = 0;
    const pid_t pid = ::wait(&status);
    const auto ended = children.find(pid);
    if (ended == children.end()) continue;
    ++num_run;
    const std::string text = ReadAll(ended->second.output.get());
    const size_t line = text.find('\n');
    std::string violations = line == std::string::npos ? "" : text.substr(line + 1);
    if (!Add(text, sums)) {
      violations = WIFSIGNALED(status)
                       ? absl::StrFormat("ended by signal %d%s", WTERMSIG(status),
                                         WTERMSIG(status) == SIGALRM ? " (too slow)" : "")
                       : absl::StrFormat("ended with %d", WEXITSTATUS(status));
    }
    if (!violations.empty()) {
      ++num_failed;
      stopping = options.stop;
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(ended->second.seed),
                  violations.c_str());
      std::fflush(stdout);
    }
    children.erase(ended);
  }
  std::printf("%s\n", absl::StrFormat("%d seeds, %d failed, %.1f s", num_run, num_failed,
                                      absl::ToDoubleSeconds(absl::Now() - begin))
                          .c_str());
  Print(sums);
  if (num_failed > 0) std::printf("replay one with --log --first-seed SEED\n");
  return num_failed == 0 ? kExitSuccess : kExitFailure;
}

}  // namespace tandem::simulate
