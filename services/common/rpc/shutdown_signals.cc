#include "services/common/rpc/shutdown_signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "services/common/base/check.h"
#include "services/common/base/logging.h"

namespace tandem {

ShutdownSignals::ShutdownSignals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGHUP);
  TANDEM_CHECK(pthread_sigmask(SIG_BLOCK, &wanted, &old_mask_) == 0);
  signal_fd_.Reset(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_fd_.Reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  TANDEM_CHECK(signal_fd_.valid() && stop_fd_.valid());
  thread_ = std::thread([this] { Run(); });
}

ShutdownSignals::~ShutdownSignals() {
  const uint64_t one = 1;
  TANDEM_CHECK(::write(stop_fd_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

void ShutdownSignals::Run() {
  while (true) {
    pollfd fds[2] = {{signal_fd_.get(), POLLIN, 0}, {stop_fd_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signal_fd_.get(), &info, sizeof(info)) != sizeof(info)) continue;
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGHUP && !terminal_.Gone()) {
      Reload();
    } else {
      ShutDown(number);
    }
  }
}

void ShutdownSignals::ShutDown(int number) {
  absl::MutexLock lock(&mutex_);
  if (requested_) {
    LogWarning("second signal, ending at once", {{"signal", number}});
    ::_exit(128 + number);
  }
  LogInfo("shutting down", {{"signal", number}});
  requested_ = true;
  signal_ = number;
}

void ShutdownSignals::Reload() {
  absl::MutexLock lock(&reload_mutex_);
  if (reload_ == nullptr) {
    reload_pending_ = true;
  } else {
    reload_();
  }
}

void ShutdownSignals::OnReload(std::function<void()> reload) {
  absl::MutexLock lock(&reload_mutex_);
  reload_ = std::move(reload);
  if (reload_ != nullptr && std::exchange(reload_pending_, false)) reload_();
}

int ShutdownSignals::Wait() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&requested_));
  return signal_;
}

bool ShutdownSignals::WaitFor(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&requested_), timeout);
}

void ShutdownSignals::Request() {
  absl::MutexLock lock(&mutex_);
  requested_ = true;
}

}  // namespace tandem
