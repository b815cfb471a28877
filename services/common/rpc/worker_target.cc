#include "services/common/rpc/worker_target.h"

#include <string_view>

#include "absl/strings/str_format.h"

namespace tandem {

absl::StatusOr<WorkerTarget> ParseWorkerTarget(const std::string& text) {
  WorkerTarget target{.text = text, .address = text};
  const size_t scheme = text.find("://");
  if (scheme == std::string::npos || text.starts_with("unix:")) return target;
  target.remote = true;
  target.tls = text.starts_with("tls://");
  target.address = text.substr(scheme + 3);
  const size_t colon = target.address.rfind(':');
  const bool has_port =
      colon != std::string::npos && colon > 0 && colon + 1 < target.address.size() &&
      target.address.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  if (has_port && (target.tls || text.starts_with("tcp://"))) return target;
  return absl::InvalidArgumentError(
      absl::StrFormat("worker '%s': must be unix:PATH or HOST:PORT on this machine, "
                      "tls://HOST:PORT or tcp://HOST:PORT on another",
                      text));
}

}  // namespace tandem
