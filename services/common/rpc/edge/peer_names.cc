#include "services/common/rpc/edge/peer_names.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "services/common/base/mutex.h"

namespace tandem {
namespace {

struct Names {
  Mutex mutex;
  // By descriptor, which are small numbers; an entry is replaced when its descriptor is used again.
  std::vector<std::string> by_fd ABSL_GUARDED_BY(mutex);
};

Names& All() {
  static auto* names = new Names;
  return *names;
}

}  // namespace

void NamePeer(int fd, const std::string& peer) {
  Names& names = All();
  MutexLock lock(names.mutex);
  const auto index = static_cast<size_t>(fd);
  if (names.by_fd.size() <= index) names.by_fd.resize(index + 1);
  names.by_fd[index] = peer;
}

std::string PeerOfCall(const std::string& grpc_peer) {
  absl::string_view text = grpc_peer;
  size_t fd = 0;
  if (!absl::ConsumePrefix(&text, "fd:") || !absl::SimpleAtoi(text, &fd)) return grpc_peer;
  Names& names = All();
  MutexLock lock(names.mutex);
  if (fd >= names.by_fd.size() || names.by_fd[fd].empty()) return grpc_peer;
  const std::string& peer = names.by_fd[fd];
  if (peer.rfind("unix:", 0) == 0) return peer;
  return (peer.front() == '[' ? "ipv6:" : "ipv4:") + peer;
}

}  // namespace tandem
