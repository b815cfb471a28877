// A loader of one model, which can die and come back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "services/common/base/mutex.h"
#include "services/common/rpc/loader_client.h"
#include "services/worker_host/weight_source.h"
#include "tools/simulate/cluster/random_source.h"

namespace tandem::simulate {

// The model that every loader has.  Made before a world begins.
struct SimulatedModel {
  std::shared_ptr<const WeightSet> weights;
  Vocabulary vocabulary;
  loader::v1::Model description;
};
const SimulatedModel& TheModel();

// Thread-safe; its clients must not outlive it.
class SimulatedLoader {
 public:
  explicit SimulatedLoader(RandomSource& random) : random_(random) {}

  // Its leases and regions are gone; mappings stay.
  void Kill();
  void Restart();
  std::unique_ptr<LoaderClient> Connect();
  // For workers.
  std::unique_ptr<WeightSource> MakeWeightSource();
  size_t num_leases() const;
  size_t num_regions() const;

 private:
  friend class SimulatedLease;
  friend class SimulatedLoaderClient;
  friend class SimulatedWeightSource;
  struct LeaseState {
    std::map<uint32_t, Region> regions;  // by id
  };
  // A call takes its time.  UNAVAILABLE: the loader is gone.
  absl::Status Reach() ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsAlive(const std::string& token) const;
  void EndLease(const std::string& token);
  absl::StatusOr<std::string> AddLease();
  absl::StatusOr<uint32_t> AddRegion(const std::string& token, uint64_t bytes);
  absl::StatusOr<Region> FindRegion(const std::string& token, uint32_t id);

  RandomSource& random_;
  mutable Mutex mutex_;
  bool alive_ ABSL_GUARDED_BY(mutex_) = true;
  bool resident_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t num_given_ ABSL_GUARDED_BY(mutex_) = 0;  // leases
  uint32_t last_region_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, LeaseState> leases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::simulate
