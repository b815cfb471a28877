// A cluster for one command alone.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "tools/tandem/commands/cluster_flags.h"

namespace tandem {

// `tandem serve` in a temporary directory; stopped and removed at the end.
class OwnCluster {
 public:
  // Does not wait until it is ready.
  static absl::StatusOr<std::unique_ptr<OwnCluster>> Start(const ClusterFlags& flags);
  ~OwnCluster();
  OwnCluster(const OwnCluster&) = delete;
  OwnCluster& operator=(const OwnCluster&) = delete;

  std::string address() const;

 private:
  explicit OwnCluster(std::string folder) : folder_(std::move(folder)) {}
  std::string folder_;
  pid_t pid_ = 0;
};

}  // namespace tandem
