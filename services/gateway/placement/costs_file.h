// Costs of placements, kept between starts.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "services/gateway/placement/placement_costs.h"

namespace tandem::gateway {

// A JSON file of costs by key.  A file that is damaged or of another version counts as empty.
// Single-thread; of several processes that write, the last one's file stays.
class CostsFile {
 public:
  // `path` empty: nothing is kept.
  explicit CostsFile(std::string path) : path_(std::move(path)) {}

  // `key` names all that the costs depend on.  `num_workers`: of the placement.  Nothing: not kept, or
  // the kept times make no sense.
  std::optional<PlacementCosts> Find(const std::string& key, size_t num_workers) const;
  // Keeps the latest 64 keys.  Errors of the file system.
  absl::Status Put(const std::string& key, const PlacementCosts& costs) const;

 private:
  const std::string path_;
};

}  // namespace tandem::gateway
