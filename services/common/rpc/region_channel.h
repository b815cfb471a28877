// The descriptor socket: how shared-memory regions pass from the loader to its clients.
//
// A SOCK_SEQPACKET unix socket beside the loader's gRPC socket.  One packet is one request, one
// packet with one descriptor (SCM_RIGHTS) is its reply, any number in turn on a connection:
//
//   request  u32 magic | u32 version | u8 token[32] | u32 kind | u32 index
//   reply    u32 magic | u32 version | i32 code | u32 message_bytes | u64 region_bytes
//            | char message[message_bytes]
//
// Little-endian.  `code` is an absl::StatusCode; the descriptor is there exactly when it is 0.
// Both ends check that the other runs as the same user.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/common/base/unique_fd.h"

namespace tandem {

inline constexpr size_t kLeaseTokenBytes = 32;

enum class RegionKind : uint32_t {
  kWeights = 0,        // weight region `index` of the leased model, read-only
  kWeightsDmabuf = 1,  // the same as a dmabuf; NOT_FOUND where the kernel offers none
  kLeaseRegion = 2,    // region `index` made by CreateRegion under the lease, read-write
};
inline constexpr uint32_t kNumRegionKinds = 3;

struct RegionRequest {
  std::string lease_token;  // kLeaseTokenBytes long
  RegionKind kind = RegionKind::kWeights;
  uint32_t index = 0;
};

struct Region {
  UniqueFd fd;  // close-on-exec
  uint64_t bytes = 0;
};

// "unix:/run/loader.sock" -> "/run/loader.sock.fds".  FAILED_PRECONDITION for a target that is no
// unix socket: descriptors cannot travel there.
absl::StatusOr<std::string> RegionSocketPath(const std::string& loader_target);

// Asks for one region and waits at most `timeout` for it.  UNAVAILABLE: nobody answers.
// PERMISSION_DENIED: the listener is another user's.  RESOURCE_EXHAUSTED: this process has no
// descriptor left.  Otherwise the server's own refusal.
absl::StatusOr<Region> FetchRegion(const std::string& socket_path, const RegionRequest& request,
                                   absl::Duration timeout = absl::Seconds(10));

// Answers requests on one thread of its own.
class RegionServer {
 public:
  struct Options {
    std::string socket_path;
    int max_connections = 64;                        // more wait in the listener's backlog
    absl::Duration idle_timeout = absl::Seconds(5);  // of a connection without a request
    uid_t allowed_uid = ::geteuid();                 // peers of other users are turned away
  };
  // Called on the server's thread; must not block.  The descriptor returned is sent and closed.
  using Handler = std::function<absl::StatusOr<Region>(const RegionRequest&)>;

  // Listens (mode 0600; stale sockets replaced as RemoveStaleSocket does).  Errors of that
  // function, INVALID_ARGUMENT for a path too long.
  static absl::StatusOr<std::unique_ptr<RegionServer>> Start(Options options, Handler handler);
  // Closes every connection and removes the socket.
  ~RegionServer();

 private:
  struct Connection {
    UniqueFd fd;
    absl::Time deadline;
    bool same_user = false;
  };

  RegionServer(Options options, Handler handler)
      : options_(std::move(options)), handler_(std::move(handler)) {}
  void Run();
  void Accept();
  // False: close the connection.
  bool Serve(Connection& connection);

  const Options options_;
  const Handler handler_;
  UniqueFd listener_;
  UniqueFd stop_;
  std::vector<Connection> connections_;  // used by thread_ alone
  absl::Time accept_after_ = absl::InfinitePast();
  std::thread thread_;
};

}  // namespace tandem
