#include "tools/tandem/serve/ports.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/unique_fd.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// The inodes of sockets that listen on the port, on whatever address.
std::set<std::string> ListenersOf(uint16_t port) {
  const std::string wanted = absl::StrFormat(":%04X", port);
  std::set<std::string> inodes;
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream table(path);
    std::string line;
    std::getline(table, line);  // the heading
    while (std::getline(table, line)) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid >>
          timeout >> inode;
      if (state == "0A" && local.ends_with(wanted)) inodes.insert("socket:[" + inode + "]");
    }
  }
  return inodes;
}

// " by nginx (pid 123)", as far as this user may look.
std::string Holder(uint16_t port) {
  const std::set<std::string> sockets = ListenersOf(port);
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    if (!std::isdigit(static_cast<unsigned char>(process.path().filename().string()[0]))) continue;
    std::error_code denied;
    for (const auto& entry : fs::directory_iterator(process.path() / "fd", denied)) {
      if (!sockets.contains(fs::read_symlink(entry.path(), denied).string())) continue;
      std::string name;
      std::getline(std::ifstream(process.path() / "comm"), name);
      return absl::StrFormat(" by %s (pid %s)", name, process.path().filename().string());
    }
  }
  return "";
}

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
  uint16_t port = 0;
};

absl::StatusOr<Address> Parse(const WantedPort& wanted) {
  const size_t colon = wanted.address.rfind(':');
  std::string host = wanted.address.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      ::getaddrinfo(host.c_str(), wanted.address.substr(colon + 1).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: ADDRESS:PORT is expected: %s", wanted.flag, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, &::freeaddrinfo);
  Address address;
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  address.port = found->ai_family == AF_INET6
                     ? ntohs(reinterpret_cast<sockaddr_in6*>(found->ai_addr)->sin6_port)
                     : ntohs(reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_port);
  return address;
}

absl::Status Refusal(const WantedPort& wanted, uint16_t port, int error) {
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(
          absl::StrFormat("%s: port %d is in use%s: stop that, or choose another port", wanted.flag,
                          port, Holder(port)));
    case EACCES:
      return absl::PermissionDeniedError(
          absl::StrFormat("%s: port %d may not be listened on: %s (ports below 1024 are for root)",
                          wanted.flag, port, std::strerror(error)));
    default:
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: cannot be listened on: %s", wanted.flag, std::strerror(error)));
  }
}

// As the services listen.
absl::StatusOr<UniqueFd> Listen(const WantedPort& wanted, const Address& address) {
  UniqueFd fd(::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.bytes), address.size) != 0 ||
      ::listen(fd.get(), 1) != 0) {
    return Refusal(wanted, address.port, errno);
  }
  return fd;
}

absl::StatusOr<UniqueFd> Claim(const WantedPort& wanted) {
  TANDEM_ASSIGN_OR_RETURN(const Address address, Parse(wanted));
  if (address.port == 0) return UniqueFd();
  return Listen(wanted, address);
}

uint16_t PortOf(const sockaddr_storage& address) {
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

absl::StatusOr<std::string> ChoosePort(const std::string& flag, const std::string& address) {
  if (!address.ends_with(":0")) return address;
  const WantedPort wanted{flag + " " + address, address};
  TANDEM_ASSIGN_OR_RETURN(const Address parsed, Parse(wanted));
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd fd, Listen(wanted, parsed));
  sockaddr_storage chosen{};
  socklen_t size = sizeof(chosen);
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&chosen), &size) != 0) {
    return Refusal(wanted, 0, errno);
  }
  return absl::StrFormat("%s:%d", address.substr(0, address.size() - 2), PortOf(chosen));
}

std::vector<WantedPort> WantedPorts(const ClusterOptions& options) {
  std::vector<WantedPort> ports;
  if (options.http != "off") ports.push_back({"--http " + options.http, options.http});
  if (options.port != 0) {
    ports.push_back({absl::StrFormat("--port %d", options.port),
                     absl::StrFormat("127.0.0.1:%d", options.port)});
  }
  if (!options.metrics) return ports;
  const auto page = [&](const char* name, int port) {
    ports.push_back({absl::StrFormat("--metrics (%s's page; --metrics-port moves all)", name),
                     MetricsAddress(options, port)});
  };
  page("gateway", MetricsPorts::kGateway);
  page("GPU worker", MetricsPorts::kGpu);
  if (options.npu != NpuPolicy::kOff) page("NPU worker", MetricsPorts::kNpu);
  page("loader", MetricsPorts::kLoader);
  page("tandem serve", MetricsPorts::kSupervisor);
  for (int gpu = 1; gpu < static_cast<int>(options.gpu_devices.size()); ++gpu) {
    page(absl::StrFormat("GPU worker %d", gpu).c_str(), MetricsPorts::kSupervisor + gpu);
  }
  return ports;
}

absl::Status CheckPorts(const std::vector<WantedPort>& ports) {
  std::vector<UniqueFd> claimed;
  for (size_t i = 0; i < ports.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (ports[j].address == ports[i].address && !ports[i].address.ends_with(":0")) {
        return absl::AlreadyExistsError(absl::StrFormat(
            "%s and %s want the same port: %s", ports[j].flag, ports[i].flag, ports[i].address));
      }
    }
    TANDEM_ASSIGN_OR_RETURN(claimed.emplace_back(), Claim(ports[i]));
  }
  return absl::OkStatus();
}

absl::Status AwaitPorts(const std::vector<WantedPort>& ports, absl::Duration patience) {
  const absl::Time until = absl::Now() + patience;
  while (true) {
    const absl::Status status = CheckPorts(ports);
    if (!absl::IsAlreadyExists(status) || absl::Now() >= until) return status;
    absl::SleepFor(absl::Milliseconds(100));
  }
}

}  // namespace tandem
