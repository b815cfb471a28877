#include "services/common/systemd/heartbeat.h"

#include <algorithm>
#include <utility>

#include "services/common/base/logging.h"

namespace tandem {

Heartbeat::Heartbeat(const ServiceManager& manager, std::function<Pulse()> pulse, Options options)
    : manager_(manager), pulse_(std::move(pulse)), options_(options) {
  if (manager_.present()) thread_ = std::thread([this] { Run(); });
}

Heartbeat::~Heartbeat() { End("ending"); }

void Heartbeat::End(std::string_view status) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = true;
  }
  if (!thread_.joinable()) return;
  thread_.join();
  manager_.Stopping();
  manager_.Status(status);
}

void Heartbeat::Run() {
  while (true) {
    const absl::Duration pause = Beat();
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&ended_), pause)) return;
  }
}

absl::Duration Heartbeat::Beat() {
  const Pulse pulse = pulse_();
  const absl::Time now = absl::Now();
  if (pulse.status != said_) {
    manager_.Status(pulse.status);
    said_ = pulse.status;
  }
  if (pulse.serving && !ready_) {
    ready_ = true;
    manager_.Ready();
  }
  const absl::Duration half = manager_.watchdog() / 2;
  if (half > absl::ZeroDuration() && now >= next_alive_) {
    if (pulse.alive) {
      manager_.Alive();
    } else {
      LogError("the watchdog's beat is withheld", {{"status", pulse.status}});
    }
    next_alive_ = now + (pulse.alive ? half : half / 4);
  }
  if (!ready_) {
    if (pulse.starting && now >= next_extension_) {
      manager_.ExtendTimeout(options_.start_extension);
      next_extension_ = now + options_.start_extension / 4;
    }
    return options_.start_interval;
  }
  if (half == absl::ZeroDuration()) return options_.status_interval;
  return std::min(options_.status_interval, next_alive_ - now);
}

}  // namespace tandem
