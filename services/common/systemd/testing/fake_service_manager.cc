#include "services/common/systemd/testing/fake_service_manager.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_split.h"
#include "services/common/base/check.h"

namespace tandem::testing {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);

}  // namespace

FakeServiceManager::FakeServiceManager() {
  socket_path_ = directory_.path() + "/notify";
  socket_.Reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  stop_.Reset(::eventfd(0, EFD_CLOEXEC));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  TANDEM_CHECK(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  thread_ = std::thread([this] { Run(); });
}

FakeServiceManager::~FakeServiceManager() {
  const uint64_t one = 1;
  TANDEM_CHECK(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

void FakeServiceManager::Run() {
  while (true) {
    pollfd fds[2] = {{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) return;
    char text[4096];
    alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))];
    iovec part{text, sizeof(text)};
    msghdr packet{};
    packet.msg_iov = &part;
    packet.msg_iovlen = 1;
    packet.msg_control = control;
    packet.msg_controllen = sizeof(control);
    const ssize_t bytes = ::recvmsg(socket_.get(), &packet, MSG_CMSG_CLOEXEC);
    TANDEM_CHECK(bytes >= 0);
    std::vector<UniqueFd> passed;
    for (cmsghdr* c = CMSG_FIRSTHDR(&packet); c != nullptr; c = CMSG_NXTHDR(&packet, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      std::vector<int> numbers((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(numbers.data(), CMSG_DATA(c), numbers.size() * sizeof(int));
      for (const int fd : numbers) passed.emplace_back(fd);
    }
    Take(std::string(text, static_cast<size_t>(bytes)), std::move(passed));
  }
}

void FakeServiceManager::Take(const std::string& message, std::vector<UniqueFd> fds) {
  const std::vector<std::string> lines = absl::StrSplit(message, '\n');
  const auto has = [&lines](const char* line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  std::string name = "stored";  // what systemd calls those without one
  for (const std::string& line : lines) {
    if (line.starts_with("FDNAME=")) name = line.substr(7);
  }
  absl::MutexLock lock(&mutex_);
  lines_.insert(lines_.end(), lines.begin(), lines.end());
  if (has("FDSTORE=1")) {
    for (UniqueFd& fd : fds) stored_.insert(stored_.begin(), Stored{name, std::move(fd)});
  }
  if (has("FDSTOREREMOVE=1")) {
    std::erase_if(stored_, [&name](const Stored& stored) { return stored.name == name; });
  }
}

std::vector<std::string> FakeServiceManager::Lines() const {
  absl::MutexLock lock(&mutex_);
  return lines_;
}

bool FakeServiceManager::WaitForLine(const std::function<bool(const std::string&)>& wanted) {
  const auto come = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::any_of(lines_.begin(), lines_.end(), wanted);
  };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&come), kPatience);
}

bool FakeServiceManager::WaitForLine(const std::string& line) {
  return WaitForLine([&line](const std::string& other) { return other == line; });
}

size_t FakeServiceManager::Count(const std::string& line) const {
  absl::MutexLock lock(&mutex_);
  return static_cast<size_t>(std::count(lines_.begin(), lines_.end(), line));
}

std::vector<std::string> FakeServiceManager::StoredNames() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> names;
  for (const Stored& stored : stored_) names.push_back(stored.name);
  return names;
}

std::vector<int> FakeServiceManager::StoredDescriptors() const {
  absl::MutexLock lock(&mutex_);
  std::vector<int> fds;
  for (const Stored& stored : stored_) fds.push_back(stored.fd.get());
  return fds;
}

}  // namespace tandem::testing
