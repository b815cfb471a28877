#include "services/common/systemd/service_manager.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

constexpr int kFirstInherited = 3;         // SD_LISTEN_FDS_START
constexpr size_t kMaxInherited = 1 << 16;  // a number larger than that is no count
constexpr size_t kMaxPassed = 253;         // SCM_MAX_FD, of one message
constexpr size_t kMaxNameBytes = 255;
constexpr timeval kSendPatience{.tv_sec = 2, .tv_usec = 0};

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsOurPid(const std::string& text) {
  int64_t pid = 0;
  return absl::SimpleAtoi(text, &pid) && pid == ::getpid();
}

absl::Status CheckDescriptorName(std::string_view name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f && c != ':'; });
  if (!name.empty() && name.size() <= kMaxNameBytes && printable) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("descriptor name '%s': 1 to %d printable characters without ':' are allowed",
                      std::string(name.substr(0, kMaxNameBytes)), kMaxNameBytes));
}

}  // namespace

ServiceManager ServiceManager::FromEnvironment() {
  ServiceManager manager;
  std::string path = Variable("NOTIFY_SOCKET");
  if (path.empty()) return manager;
  if ((path[0] != '/' && path[0] != '@') || path.size() >= sizeof(manager.address_.sun_path)) {
    LogWarning("cannot notify the service manager",
               {{"NOTIFY_SOCKET", path}, {"reason", "neither /PATH nor @NAME, or too long"}});
    return manager;
  }
  manager.address_.sun_family = AF_UNIX;
  if (path[0] == '@') path[0] = '\0';  // the abstract namespace
  path.copy(manager.address_.sun_path, path.size());
  manager.address_bytes_ = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  manager.socket_.Reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!manager.socket_.valid() || ::setsockopt(manager.socket_.get(), SOL_SOCKET, SO_SNDTIMEO,
                                               &kSendPatience, sizeof(kSendPatience)) != 0) {
    LogWarning("cannot notify the service manager", {{"reason", std::strerror(errno)}});
    return ServiceManager();
  }
  int64_t interval_us = 0;
  const std::string watched = Variable("WATCHDOG_PID");
  if (absl::SimpleAtoi(Variable("WATCHDOG_USEC"), &interval_us) && interval_us > 0 &&
      (watched.empty() || IsOurPid(watched))) {
    manager.watchdog_ = absl::Microseconds(interval_us);
  }
  return manager;
}

void ServiceManager::Status(std::string_view text) const {
  std::string line = absl::StrFormat("STATUS=%s", std::string(text));
  std::replace(line.begin(), line.end(), '\n', ' ');
  Notify(line);
}

void ServiceManager::ExtendTimeout(absl::Duration more) const {
  Notify(absl::StrFormat("EXTEND_TIMEOUT_USEC=%d", absl::ToInt64Microseconds(more)));
}

absl::Status ServiceManager::StoreDescriptors(std::string_view name,
                                              std::span<const int> fds) const {
  TANDEM_RETURN_IF_ERROR(CheckDescriptorName(name));
  const std::string message = absl::StrFormat("FDSTORE=1\nFDPOLL=0\nFDNAME=%s", std::string(name));
  for (size_t begin = 0; begin < fds.size(); begin += kMaxPassed) {
    TANDEM_RETURN_IF_ERROR(
        Send(message, fds.subspan(begin, std::min(kMaxPassed, fds.size() - begin))));
  }
  return absl::OkStatus();
}

absl::Status ServiceManager::RemoveDescriptors(std::string_view name) const {
  TANDEM_RETURN_IF_ERROR(CheckDescriptorName(name));
  return Send(absl::StrFormat("FDSTOREREMOVE=1\nFDNAME=%s", std::string(name)), {});
}

absl::Status ServiceManager::Barrier(absl::Duration timeout) const {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrFormat("pipe: %s", std::strerror(errno)));
  }
  const UniqueFd read_end(ends[0]);
  {
    const UniqueFd write_end(ends[1]);  // the manager's copy is the last one
    TANDEM_RETURN_IF_ERROR(Send("BARRIER=1", {{write_end.get()}}));
  }
  pollfd closed{read_end.get(), POLLIN, 0};
  if (::poll(&closed, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) == 1) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError("the service manager has not read its messages");
}

void ServiceManager::Notify(std::string_view message) const {
  if (!present()) return;
  const absl::Status sent = Send(message, {});
  if (!sent.ok()) {
    LogWarning("the service manager did not get a message",
               {{"message", std::string(message)}, {"reason", std::string(sent.message())}});
  }
}

absl::Status ServiceManager::Send(std::string_view message, std::span<const int> fds) const {
  if (!present()) return absl::FailedPreconditionError("no service manager started this process");
  iovec part{const_cast<char*>(message.data()), message.size()};
  msghdr packet{};
  packet.msg_name = const_cast<sockaddr_un*>(&address_);
  packet.msg_namelen = address_bytes_;
  packet.msg_iov = &part;
  packet.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPassed * sizeof(int))] = {};
  if (!fds.empty()) {
    packet.msg_control = control;
    packet.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&packet);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  }
  if (::sendmsg(socket_.get(), &packet, MSG_NOSIGNAL) >= 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("sendmsg: %s", std::strerror(errno)));
}

std::vector<InheritedDescriptor> TakeInheritedDescriptors() {
  std::vector<InheritedDescriptor> inherited;
  size_t count = 0;
  if (!IsOurPid(Variable("LISTEN_PID")) || !absl::SimpleAtoi(Variable("LISTEN_FDS"), &count) ||
      count > kMaxInherited) {
    return inherited;
  }
  const std::vector<std::string> names = absl::StrSplit(Variable("LISTEN_FDNAMES"), ':');
  for (size_t i = 0; i < count; ++i) {
    const int fd = kFirstInherited + static_cast<int>(i);
    if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) continue;  // not open
    inherited.push_back({i < names.size() ? names[i] : "", UniqueFd(fd)});
  }
  // Children must not take them for theirs, nor a second call here.
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) ::unsetenv(name);
  return inherited;
}

}  // namespace tandem
