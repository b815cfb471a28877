// Sockets that listen, for servers that accept by themselves.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

struct ListenSocket {
  UniqueFd fd;         // does not block
  bool local = false;  // a unix socket
  std::string target;  // "unix:/path" or "127.0.0.1:50051", the port filled in
};

// Listens on "unix:/path", whose file gets mode 0600, or on "HOST:PORT", HOST an address or
// localhost; port 0 takes a free one.  ALREADY_EXISTS: in use or not permitted; INVALID_ARGUMENT:
// no such host.
absl::StatusOr<ListenSocket> Listen(const std::string& address);

struct Accepted {
  UniqueFd fd;           // does not block
  int error = 0;         // errno, where nothing was accepted
  std::string peer;      // "127.0.0.1:55512" or "unix:uid=1000,pid=77"
  bool foreign = false;  // of another user, root excepted, at a unix socket
};
// Whether a connection waits to be accepted.
bool IsAwaited(const ListenSocket& socket);
// Takes one connection.
Accepted Accept(const ListenSocket& socket);

// Whether accept(2) fails with `error` because descriptors or memory ran out, so that an immediate
// retry would fail too.
bool IsShortage(int error);

}  // namespace tandem
