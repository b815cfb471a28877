// Leases on models.
//
// A lease, by an unguessable token, gives access to its model's weight regions and to the regions
// made under it.  When it ends, its own regions are freed at once, and its model too unless another
// lease holds it.  Clients' mappings stay valid, because the kernel counts them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/common/rpc/region_channel.h"
#include "services/loader/store/resident_model.h"

namespace tandem::loader {

struct LeaseGrant {
  std::string token;  // kLeaseTokenBytes random bytes
  std::shared_ptr<const ResidentModel> model;
};

struct LeaseLimits {
  uint64_t max_bytes = 16ull << 30;  // in regions made under one lease
  uint32_t max_regions = 64;         // likewise
  uint32_t max_leases = 1024;
};

struct LeaseStatus {
  std::string model_id, holder;
  absl::Duration age;
  uint64_t exchange_bytes = 0;
  uint32_t num_regions = 0;
};

// A descriptor of the same object.  RESOURCE_EXHAUSTED: this process has none left.
absl::StatusOr<Region> Duplicate(const UniqueFd& fd, uint64_t bytes);

// Thread-safe; everything returns at once.
class Leases {
 public:
  explicit Leases(LeaseLimits limits) : limits_(limits) {}

  // RESOURCE_EXHAUSTED: too many leases.
  absl::StatusOr<LeaseGrant> Grant(std::shared_ptr<const ResidentModel> model,
                                   const std::string& holder);
  // Ends a lease and frees its regions.  Ignores unknown tokens.
  void Release(const std::string& token);

  // Makes a zeroed, size-sealed region of at least `bytes` under a lease; returns its id.
  // NOT_FOUND: no such lease.  INVALID_ARGUMENT, RESOURCE_EXHAUSTED: over the limits.
  absl::StatusOr<uint32_t> CreateRegion(const std::string& token, uint64_t bytes,
                                        const std::string& purpose);

  // A descriptor of a region, for a caller with the lease's token.  NOT_FOUND: no such lease,
  // region or dmabuf.
  absl::StatusOr<Region> GetRegion(const RegionRequest& request) const;

  std::vector<LeaseStatus> GetStatus() const;

 private:
  struct Exchange {
    UniqueFd fd;
    uint64_t bytes = 0;
  };
  struct Lease {
    std::shared_ptr<const ResidentModel> model;
    std::string holder;
    absl::Time since;
    std::vector<Exchange> regions;
    uint64_t bytes = 0;
  };

  const LeaseLimits limits_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Lease> leases_ ABSL_GUARDED_BY(mutex_);  // by token
};

}  // namespace tandem::loader
