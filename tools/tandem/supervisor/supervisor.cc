#include "tools/tandem/supervisor/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "tools/tandem/supervisor/log_line.h"

namespace tandem {
namespace {

// One press of a key can arrive twice: from the terminal's group and from a wrapper's.
constexpr absl::Duration kSignalEcho = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(std::vector<ServiceSpec> services,
                                                               SupervisorOptions options) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(services), options));
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (options.handle_signals) {
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
  }
  // Blocked here and read from the descriptor; threads made from now on inherit the mask.
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  supervisor->signal_fd_.Reset(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  supervisor->stop_fd_.Reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!supervisor->signal_fd_.valid() || !supervisor->stop_fd_.valid()) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("supervisor descriptors: %s", std::strerror(errno)));
  }
  TANDEM_ASSIGN_OR_RETURN(supervisor->logs_, LogCollector::Create(options.rotation));
  for (Service& service : supervisor->services_) {
    ProcessSpec& process = service.spec.process;
    if (process.log_path.empty()) continue;
    TANDEM_ASSIGN_OR_RETURN(process.output_fd, supervisor->logs_->Add(process.log_path));
  }
  return supervisor;
}

Supervisor::Supervisor(std::vector<ServiceSpec> services, SupervisorOptions options)
    : options_(options) {
  for (ServiceSpec& spec : services) {
    Service service;
    service.state.name = spec.process.name;
    service.spec = std::move(spec);
    service.delay = options_.first_delay;
    services_.push_back(std::move(service));
  }
  restarts_.assign(services_.size(), 0);
}

Supervisor::~Supervisor() {
  for (const Service& service : services_) {
    if (service.state.pid > 0) ::kill(service.state.pid, SIGKILL);
  }
}

absl::Status Supervisor::Start() {
  for (Service& service : services_) {
    if (absl::Status status = StartService(service); !status.ok()) {
      if (service.spec.give_up) {
        GiveUp(service, std::string(status.message()));
        continue;
      }
      Drain().IgnoreError();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status Supervisor::StartService(Service& service) {
  TANDEM_ASSIGN_OR_RETURN(service.state.pid, StartProcess(service.spec.process));
  service.started = absl::Now();
  service.next_start = absl::InfiniteFuture();
  LogInfo("service started", {{"name", service.state.name}, {"pid", service.state.pid}});
  return absl::OkStatus();
}

void Supervisor::ReapAll(bool draining) {
  for (Service& service : services_) {
    if (service.state.pid == 0) continue;
    const auto end = ReapProcess(service.state.pid);
    if (!end.has_value()) continue;
    service.state.pid = 0;
    service.state.last_end = end->Text();
    if (draining) continue;
    if (!end->signalled && service.spec.final_exit_codes.contains(end->code)) {
      service.state.finished = true;
      LogFinal(service, *end);
      continue;
    }
    service.ends.push_back(absl::Now());
    while (service.ends.back() - service.ends.front() > options_.crash_window) {
      service.ends.pop_front();
    }
    service.worked |= service.ends.back() - service.started >= options_.steady_after;
    if (CannotRun(service, *end)) {
      const std::string reason =
          absl::StrFormat("%s cannot run: %s (%s)", service.state.name,
                          LogReason(LastLine(service)), service.state.last_end);
      if (service.spec.give_up) {
        GiveUp(service, reason);
      } else {
        service.state.finished = true;
        fatal_.Update(absl::FailedPreconditionError(reason));
      }
      continue;
    }
    ScheduleRestart(service, *end);
  }
}

void Supervisor::LogFinal(const Service& service, const ProcessEnd& end) {
  if (!service.spec.fatal_exit_codes.contains(end.code)) {
    LogInfo("service has nothing to do here", {{"name", service.state.name}, {"end", end.Text()}});
    return;
  }
  LogError("service cannot run, and is not started again; the others go on without it",
           {{"name", service.state.name},
            {"end", end.Text()},
            {"last_line", LastLine(service)},
            {"log", service.spec.process.log_path}});
}

bool Supervisor::CannotRun(const Service& service, const ProcessEnd& end) const {
  if (service.spec.give_up ? service.worked : ready_.load()) return false;
  if (static_cast<int>(service.ends.size()) >= options_.crash_limit) return true;
  return !end.signalled && service.spec.fatal_exit_codes.contains(end.code);
}

void Supervisor::GiveUp(Service& service, const std::string& reason) {
  service.state.finished = true;
  LogError(
      "service cannot run, and is not started again; the others go on without it",
      {{"name", service.state.name}, {"reason", reason}, {"log", service.spec.process.log_path}});
  service.spec.give_up(reason);
}

std::string Supervisor::LastLine(const Service& service) {
  std::string line = logs_->LastLine(service.spec.process.log_path);
  return line.empty() ? "it has logged nothing" : line;
}

void Supervisor::ScheduleRestart(Service& service, const ProcessEnd& end) {
  const absl::Time now = absl::Now();
  if (now - service.started >= options_.steady_after) service.delay = options_.first_delay;
  const bool open = static_cast<int>(service.ends.size()) >= options_.crash_limit;
  const absl::Duration delay = open ? options_.open_delay : service.delay;
  service.next_start = now + delay;
  service.delay = std::min(service.delay * 2, options_.last_delay);
  LogError(open ? "service keeps ending, circuit open" : "service ended, restarting",
           {{"name", service.state.name},
            {"end", end.Text()},
            {"restart_in", absl::FormatDuration(delay)},
            {"last_line", LastLine(service)},
            {"log", service.spec.process.log_path}});
}

void Supervisor::StartDue() {
  for (Service& service : services_) {
    if (service.state.pid != 0 || service.next_start > absl::Now()) continue;
    ++service.state.restarts;
    {
      MutexLock lock(mutex_);
      ++restarts_[static_cast<size_t>(&service - services_.data())];
    }
    if (absl::Status status = StartService(service); !status.ok()) {
      LogError("service cannot be started", {{"error", std::string(status.message())}});
      service.next_start = absl::Now() + options_.open_delay;
    }
  }
}

bool Supervisor::WaitForEvent(absl::Time deadline) {
  pollfd fds[2] = {{signal_fd_.get(), POLLIN, 0}, {stop_fd_.get(), POLLIN, 0}};
  const absl::Duration left =
      std::clamp(deadline - absl::Now(), absl::ZeroDuration(), absl::Seconds(3600));
  ::poll(fds, 2,
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
  bool stop = false;
  signalfd_siginfo info;
  while (::read(signal_fd_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGHUP && !terminal_.Gone()) {
      PassHangupOn();
    } else {
      stop |= info.ssi_signo != SIGCHLD;
    }
  }
  uint64_t count = 0;
  stop |= ::read(stop_fd_.get(), &count, sizeof(count)) == sizeof(count);
  return stop;
}

void Supervisor::PassHangupOn() {
  for (const Service& service : services_) {
    if (!service.spec.takes_hangup || service.state.pid == 0) continue;
    LogInfo("passing SIGHUP on", {{"name", service.state.name}});
    ::kill(service.state.pid, SIGHUP);
  }
}

absl::Status Supervisor::Run() {
  while (true) {
    absl::Time deadline = absl::InfiniteFuture();
    for (const Service& service : services_) {
      if (service.state.pid == 0) deadline = std::min(deadline, service.next_start);
    }
    if (WaitForEvent(deadline)) break;
    ReapAll(/*draining=*/false);
    if (!fatal_.ok()) break;
    StartDue();
  }
  LogInfo("draining");
  const absl::Status drained = Drain();
  return fatal_.ok() ? drained : fatal_;
}

absl::Status Supervisor::Drain() {
  std::set<int, std::greater<>> ranks;
  for (const Service& service : services_) ranks.insert(service.spec.stop_rank);
  std::vector<std::string> killed;
  bool force = false;
  const absl::Time begun = absl::Now();
  for (const int rank : ranks) {
    std::vector<Service*> members;
    absl::Time deadline = absl::InfinitePast();
    const absl::Time now = absl::Now();
    for (Service& service : services_) {
      if (service.spec.stop_rank != rank || service.state.pid == 0) continue;
      members.push_back(&service);
      deadline = std::max(deadline, now + service.spec.stop_grace);
      ::kill(service.state.pid, SIGTERM);
    }
    const auto running = [&members] {
      return std::any_of(members.begin(), members.end(),
                         [](const Service* s) { return s->state.pid != 0; });
    };
    while (running() && !force && absl::Now() < deadline) {
      force = WaitForEvent(deadline) && absl::Now() - begun > kSignalEcho;
      ReapAll(/*draining=*/true);
    }
    for (Service* service : members) {
      if (service->state.pid == 0) continue;
      killed.push_back(service->state.name);
      ::kill(service->state.pid, SIGKILL);
      while (service->state.pid != 0) {
        WaitForEvent(absl::Now() + absl::Milliseconds(20));
        ReapAll(/*draining=*/true);
      }
    }
  }
  if (killed.empty()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrFormat("killed after their grace: %s", absl::StrJoin(killed, ", ")));
}

void Supervisor::RequestStop() {
  const uint64_t one = 1;
  if (::write(stop_fd_.get(), &one, sizeof(one)) != sizeof(one)) {
    LogError("stop request lost", {{"error", std::strerror(errno)}});
  }
}

std::vector<std::pair<std::string, int>> Supervisor::Restarts() const {
  std::vector<std::pair<std::string, int>> restarts;
  MutexLock lock(mutex_);
  // Names do not change after the start.
  for (size_t i = 0; i < services_.size(); ++i) {
    restarts.emplace_back(services_[i].spec.process.name, restarts_[i]);
  }
  return restarts;
}

std::vector<Supervisor::ServiceState> Supervisor::States() const {
  std::vector<ServiceState> states;
  for (const Service& service : services_) states.push_back(service.state);
  return states;
}

}  // namespace tandem
