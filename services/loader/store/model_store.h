// Models in memory.
//
// A model is packed once and stays while a lease holds it; the model loaded last also stays without
// a lease.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "services/loader/packing/packed_cache.h"
#include "services/loader/packing/packer.h"
#include "services/loader/source/model_source.h"
#include "services/loader/store/kept_weights.h"
#include "services/loader/store/leases.h"
#include "services/loader/store/model_catalog.h"
#include "services/loader/store/packed_cache_writer.h"
#include "services/loader/store/resident_model.h"

namespace tandem::loader {

struct StoreStatus {
  struct Model {
    std::string model_id, name;
    uint64_t weight_bytes = 0;
    uint32_t num_leases = 0;
  };
  std::vector<Model> models;
  std::vector<LeaseStatus> leases;
  uint64_t weight_bytes = 0;
  uint64_t exchange_bytes = 0;
  uint32_t num_regions = 0;  // shared-memory objects open
};

// Thread-safe.  Load blocks; everything else returns at once.
class ModelStore {
 public:
  struct Options {
    std::vector<std::string> roots;
    std::map<std::string, std::string> vision;  // as ModelCatalog::Create takes it
    PackOptions packing;
    PackedCacheOptions packed_cache;  // an empty folder: packed weights are not kept on disk
    // Smaller models are packed in less than a second.  Synthetic ones are never kept: they are
    // made as fast as they would be read.
    uint64_t min_cached_bytes = 256ull << 20;
    LeaseLimits leases;
  };

  // `kept`, shared with the models: models of an earlier loader are resident at once if their files
  // are unchanged, and models loaded now outlive this loader.  May be null.
  static absl::StatusOr<std::unique_ptr<ModelStore>> Create(
      Options options, std::shared_ptr<KeptWeights> kept = nullptr);
  ~ModelStore();

  const ModelCatalog& catalog() const { return catalog_; }

  // Opens the model of `name`.  Unless the same content is resident, reads it from the packed cache
  // or packs it.  A packed model is then written to the cache while it is already served.
  // `progress` as in PackModel.  Errors of ModelCatalog::Resolve, OpenSeeingModel and PackModel.
  // If memory is short, drops the last model unless it is leased, and tries again.
  absl::StatusOr<std::shared_ptr<const ResidentModel>> Load(
      const std::string& name, const std::function<bool(const PackProgress&)>& progress);

  // NOT_FOUND: not resident, load it first.
  absl::StatusOr<std::shared_ptr<const ResidentModel>> Find(const std::string& model_id) const;
  bool IsResident(const std::string& path) const;

  // A lease on a resident model.  Errors of Find and Leases::Grant.
  absl::StatusOr<LeaseGrant> Acquire(const std::string& model_id, const std::string& holder);
  Leases& leases() { return leases_; }
  const Leases& leases() const { return leases_; }

  StoreStatus GetStatus() const;

  // Returns when all writes to the packed cache are done.
  void WaitForCache();

 private:
  ModelStore(Options options, ModelCatalog catalog, std::shared_ptr<KeptWeights> kept);
  absl::StatusOr<PackedModel> ReadOrPack(const ModelSource& source, const PackedName* name,
                                         PackingPlan plan,
                                         const std::function<bool(const PackProgress&)>& progress,
                                         bool& from_cache);
  void KeepInCache(const PackedName& name, const ResidentModel& model);
  absl::StatusOr<std::shared_ptr<const ResidentModel>> Pack(
      const ModelFile& file, const std::string& stamp, const ModelSource& source,
      const std::function<bool(const PackProgress&)>& progress);
  // A model without its weights.
  static std::shared_ptr<ResidentModel> Describe(const ModelFile& file, const std::string& stamp,
                                                 const ModelSource& source);
  // Makes a model resident that the service manager kept.  FAILED_PRECONDITION: it would be packed
  // differently now.  NOT_FOUND, DATA_LOSS: its files are gone, or have changed.
  absl::Status Adopt(KeptModel kept);
  void LogResident(const ResidentModel& model, const std::string& from) const;
  // Drops models without a lease; whether memory became free.
  bool DropIdleModel();

  const Options options_;
  const ModelCatalog catalog_;
  const std::shared_ptr<KeptWeights> kept_;    // null: the process's end is the weights' end
  std::unique_ptr<PackedCache> cache_;         // null: none is kept
  std::unique_ptr<PackedCacheWriter> writer_;  // null likewise
  absl::Mutex load_mutex_;                     // one model is packed at a time
  mutable absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(load_mutex_);
  std::map<std::string, std::weak_ptr<const ResidentModel>> models_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ResidentModel> last_ ABSL_GUARDED_BY(mutex_);
  // Models of an earlier loader stay until another model is loaded: their clients may come back.
  std::vector<std::shared_ptr<const ResidentModel>> adopted_ ABSL_GUARDED_BY(mutex_);
  Leases leases_;
};

}  // namespace tandem::loader
