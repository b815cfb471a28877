// Models in memory and the leases on them.
//
// A model is packed once and stays while a lease holds it; the model loaded last also stays without
// a lease.  A lease, by an unguessable token, gives access to its model's weight regions and to the
// regions made under it.  When it ends, its own regions are freed at once, and its model too unless
// another lease holds it.  Clients' mappings stay valid, because the kernel counts them.
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
#include "services/common/model/vocabulary.h"
#include "services/common/rpc/region_channel.h"
#include "services/loader/formats/model_source.h"
#include "services/loader/packing/packed_cache.h"
#include "services/loader/packing/packer.h"
#include "services/loader/store/kept_weights.h"
#include "services/loader/store/model_catalog.h"
#include "services/loader/store/packed_cache_writer.h"
#include "services/loader/store/weight_region.h"

namespace tandem::loader {

// Immutable.  Shared by the store, the leases on it, and calls that are reading from it.
struct ResidentModel {
  std::string model_id;
  std::string name;
  std::string path;
  std::string file_stamp;  // FileStamp of the catalog, taken before the files were read
  ModelConfig config;
  Vocabulary vocabulary;
  std::string chat_template;
  SamplingDefaults sampling_defaults;
  std::string quantization;  // "Q4_K_M"
  std::vector<PackedTensor> tensors;
  std::vector<SealedRegion> regions;
  uint64_t source_bytes = 0;
  uint64_t weight_bytes = 0;  // of the regions
  double load_seconds = 0.0;
  std::unique_ptr<KeptHold> hold;  // null: the service manager does not keep the regions
};

struct LeaseGrant {
  std::string token;  // kLeaseTokenBytes random bytes
  std::shared_ptr<const ResidentModel> model;
};

struct StoreStatus {
  struct Model {
    std::string model_id, name;
    uint64_t weight_bytes = 0;
    uint32_t num_leases = 0;
  };
  struct Lease {
    std::string model_id, holder;
    absl::Duration age;
    uint64_t exchange_bytes = 0;
  };
  std::vector<Model> models;
  std::vector<Lease> leases;
  uint64_t weight_bytes = 0;
  uint64_t exchange_bytes = 0;
  uint32_t num_regions = 0;  // shared-memory objects open
};

// Thread-safe.  Load blocks; everything else returns at once.
class ModelStore {
 public:
  struct Options {
    std::vector<std::string> roots;
    PackOptions packing;
    PackedCacheOptions packed_cache;  // an empty folder: packed weights are not kept on disk
    // Smaller models are packed in less than a second.  Synthetic ones are never kept: they are
    // made as fast as they would be read.
    uint64_t min_cached_bytes = 256ull << 20;
    uint64_t max_lease_bytes = 16ull << 30;  // in regions made under one lease
    uint32_t max_lease_regions = 64;
    uint32_t max_leases = 1024;
  };

  // `kept`, shared with the models: models of an earlier loader are resident at once if their files
  // are unchanged, and models loaded now outlive this loader.  May be null.
  static absl::StatusOr<std::unique_ptr<ModelStore>> Create(
      Options options, std::shared_ptr<KeptWeights> kept = nullptr);
  ~ModelStore();

  const ModelCatalog& catalog() const { return catalog_; }

  // Opens the model of `name`.  Unless the same content is resident, reads it from the packed cache
  // or packs it.  A packed model is then written to the cache while it is already served.
  // `progress` as in PackModel.  Errors of ModelCatalog::Resolve, OpenModelSource and PackModel.
  // If memory is short, drops the last model unless it is leased, and tries again.
  absl::StatusOr<std::shared_ptr<const ResidentModel>> Load(
      const std::string& name, const std::function<bool(const PackProgress&)>& progress);

  // NOT_FOUND: not resident, load it first.
  absl::StatusOr<std::shared_ptr<const ResidentModel>> Find(const std::string& model_id) const;
  bool IsResident(const std::string& path) const;

  // NOT_FOUND as Find; RESOURCE_EXHAUSTED: too many leases.
  absl::StatusOr<LeaseGrant> Acquire(const std::string& model_id, const std::string& holder);
  // Ends a lease and frees its regions.  Ignores unknown tokens.
  void Release(const std::string& token);

  // Makes a zeroed, size-sealed region of at least `bytes` under a lease; returns its id.
  // NOT_FOUND: no such lease.  INVALID_ARGUMENT, RESOURCE_EXHAUSTED: over the limits of Options.
  absl::StatusOr<uint32_t> CreateRegion(const std::string& token, uint64_t bytes,
                                        const std::string& purpose);

  // A descriptor of a region, for a caller with the lease's token.  NOT_FOUND: no such lease,
  // region or dmabuf.
  absl::StatusOr<Region> GetRegion(const RegionRequest& request) const;

  StoreStatus GetStatus() const;

  // Returns when all writes to the packed cache are done.
  void WaitForCache();

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
  std::map<std::string, Lease> leases_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem::loader
