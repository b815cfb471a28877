// A cluster for a single command.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/cluster_flags.h"

namespace tandem {

// `tandem serve` in a temporary directory; stopped and removed at the end.  If this process is
// killed, `tandem serve` stops and removes the directory itself.
class OwnCluster {
 public:
  // Does not wait until it is ready.
  static absl::StatusOr<std::unique_ptr<OwnCluster>> Start(const ClusterFlags& flags);
  ~OwnCluster();
  OwnCluster(const OwnCluster&) = delete;
  OwnCluster& operator=(const OwnCluster&) = delete;

  std::string address() const;
  // Waits until it is ready.  `progress` gets each new phase.
  // FAILED_PRECONDITION: it ended or cannot become ready; includes its last log lines.
  // DEADLINE_EXCEEDED.
  absl::StatusOr<v1::GetStatusResponse> AwaitReady(
      GenerationStub& stub, absl::Duration timeout,
      const std::function<void(const std::string&)>& progress);

 private:
  explicit OwnCluster(std::string folder) : folder_(std::move(folder)) {}
  bool Ended();

  std::string folder_;
  pid_t pid_ = 0;
};

}  // namespace tandem
