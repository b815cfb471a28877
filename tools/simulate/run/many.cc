#include "tools/simulate/run/many.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "services/common/base/check.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/logging.h"
#include "services/common/base/unique_fd.h"
#include "tools/simulate/run/constraints.h"
#include "tools/simulate/run/simulation.h"
#include "tools/simulate/threads/world.h"

namespace tandem::simulate {
namespace {

// What a child writes about its seed, before a line for each violation.
struct Sums {
  uint64_t answered = 0, refused = 0, ended = 0, cancelled = 0;
  Reached reached;
};

std::string ToText(const Findings& findings) {
  const Reached& r = findings.reached;
  return absl::StrFormat("%d %d %d %d %d %d %d %d %d %d %d %d\n%s", findings.num_answered,
                         findings.num_refused, findings.num_ended, findings.num_cancelled, r.steps,
                         r.recoveries, r.moved, r.handed_over, r.preemptions, r.cached_tokens,
                         r.rejected_guesses, r.drafted_tokens,
                         absl::StrJoin(findings.violations, "\n"));
}

// Adds what a child wrote; false: it wrote nothing.
bool Add(const std::string& text, Sums& sums) {
  std::istringstream words(text.substr(0, text.find('\n')));
  Sums one;
  Reached& r = one.reached;
  std::string events;
  words >> events >> one.answered >> one.refused >> one.ended >> one.cancelled >> r.steps >>
      r.recoveries >> r.moved >> r.handed_over >> r.preemptions >> r.cached_tokens >>
      r.rejected_guesses >> r.drafted_tokens;
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
      "%d steps, %d recoveries, %d requests moved, %d of them with their KV, %d preempted, %d "
      "tokens of prompts cached, "
      "%d guesses rejected, %d tokens drafted",
      sums.answered, sums.ended, sums.refused, sums.cancelled, r.steps, r.recoveries, r.moved,
      r.handed_over, r.preemptions, r.cached_tokens, r.rejected_guesses, r.drafted_tokens);
  std::printf("%s\n", text.c_str());
}

// One processor is enough for threads that run one at a time, and spares moving them.
void StayOnOneProcessor(uint32_t slot) {
  cpu_set_t all;
  if (::sched_getaffinity(0, sizeof(all), &all) != 0) return;
  auto skip = static_cast<int>(slot) % std::max(1, CPU_COUNT(&all));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::sched_setaffinity(0, sizeof(one), &one);
    return;
  }
}

struct Child {
  uint64_t seed = 0;
  uint32_t slot = 0;        // below ManyOptions::num_jobs
  UniqueFd output, errors;  // memfds
  std::string first;  // with ManyOptions::twice: the output of the first run; empty: this is it
};

// In a child: runs a seed and writes what it found to the output.
[[noreturn]] void RunOne(const Child& child, uint32_t seconds) {
  ::alarm(seconds);
  StayOnOneProcessor(child.slot);
  // Errors are logs of expected faults, and the reason of an abort.
  TANDEM_CHECK(::dup2(child.errors.get(), STDERR_FILENO) == STDERR_FILENO);
  InitLogging("gateway");
  uint64_t events = 0;
  const Note note = [&events](const std::string& text) {
    events = events * 31 + std::hash<std::string>()(ElapsedText() + text);
  };
  const auto end = [&](const Findings& findings) {
    const std::string text = absl::StrFormat("%016x %s", events, ToText(findings));
    const auto written = ::write(child.output.get(), text.data(), text.size());
    TANDEM_CHECK(written == static_cast<ssize_t>(text.size()));
  };
  Simulate(DrawScenario(child.seed), note, end);
  ::_exit(kExitSuccess);
}

std::string ReadAll(int fd) {
  std::string text(static_cast<size_t>(std::max<off_t>(0, ::lseek(fd, 0, SEEK_END))), '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

// Why a child ended that wrote nothing.
std::string WhyEnded(int status, const Child& child) {
  const std::string errors = ReadAll(child.errors.get());
  const size_t check = errors.rfind("check failed");
  if (check != std::string::npos) {
    const size_t begin = errors.rfind('\n', check) + 1;
    return errors.substr(begin, errors.find('\n', check) - begin);
  }
  if (!WIFSIGNALED(status)) return absl::StrFormat("ended with %d", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGALRM) return "takes too long";
  return absl::StrFormat("ended by signal %d", WTERMSIG(status));
}

// Children that run, and how they ended.
class Many {
 public:
  explicit Many(const ManyOptions& options) : options_(options), next_(options.first_seed) {}

  int Run() {
    ::signal(SIGCHLD, SIG_DFL);
    const absl::Time begin = absl::Now();
    while (true) {
      for (uint32_t slot = 0; slot < options_.num_jobs && More(); ++slot) {
        const bool taken = std::ranges::any_of(
            children_, [slot](const auto& child) { return child.second.slot == slot; });
        if (!taken) Begin({.seed = next_++, .slot = slot});
      }
      if (children_.empty()) break;
      int status = 0;
      const pid_t pid = ::wait(&status);
      TANDEM_CHECK(pid >= 0 || errno == EINTR);
      if (auto ended = children_.extract(pid)) End(std::move(ended.mapped()), status);
    }
    std::printf("%s\n", absl::StrFormat("%d seeds, %d failed, %.1f s", num_run_, num_failed_,
                                        absl::ToDoubleSeconds(absl::Now() - begin))
                            .c_str());
    Print(sums_);
    if (num_failed_ > 0) std::printf("replay one with --log --first-seed SEED\n");
    return num_failed_ == 0 ? kExitSuccess : kExitFailure;
  }

 private:
  bool More() const {
    return next_ - options_.first_seed < options_.num_seeds && (num_failed_ == 0 || !options_.stop);
  }
  void Begin(Child child) {
    child.output.Reset(::memfd_create("findings", MFD_CLOEXEC));
    child.errors.Reset(::memfd_create("errors", MFD_CLOEXEC));
    const pid_t pid = ::fork();
    TANDEM_CHECK(pid >= 0);
    if (pid == 0) RunOne(child, options_.seconds);
    children_[pid] = std::move(child);
  }
  void End(Child child, int status) {
    const std::string text = ReadAll(child.output.get());
    if (options_.twice && child.first.empty() && !text.empty()) {
      return Begin({.seed = child.seed, .slot = child.slot, .first = text});
    }
    ++num_run_;
    const size_t line = text.find('\n');
    std::string violations = line == std::string::npos ? "" : text.substr(line + 1);
    if (!Add(text, sums_)) violations = WhyEnded(status, child);
    if (!child.first.empty() && child.first != text) violations = "differs when it is run again";
    if (violations.empty()) return;
    ++num_failed_;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(child.seed), violations.c_str());
    std::fflush(stdout);
  }

  const ManyOptions options_;
  uint64_t next_;
  std::map<pid_t, Child> children_;
  uint64_t num_failed_ = 0, num_run_ = 0;
  Sums sums_;
};

}  // namespace

int RunMany(const ManyOptions& options) {
  // Once, for all children.
  TheSchema();
  ThePattern();
  return Many(options).Run();
}

}  // namespace tandem::simulate
