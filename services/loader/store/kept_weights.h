// Weights that outlive the loader: the service manager keeps their descriptors (its "file
// descriptor store") and passes them to the next loader, which then reads and packs nothing.
//
// For each resident model the manager holds, by name,
//
//   weights.CONTENT_ID    the regions, and their dmabufs
//   manifest.CONTENT_ID   a sealed memfd that describes them:
//
//     tandem weights 1
//     name MODEL_NAME
//     key HIGH LOW                           of the packing plan and the layout (PackedKey)
//     region BYTES INODE SEALS DMABUF_INODE  one a region, in order; no dmabuf: 0
//
// Descriptors come back in any order; inodes identify them.  An incomplete model is dropped, here
// and at the manager.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/common/systemd/service_manager.h"
#include "services/loader/packing/packed_cache.h"
#include "services/loader/store/weight_region.h"

namespace tandem::loader {

// A model that came back: regions of the right sizes, sealed as before, that no process can write.
struct KeptModel {
  std::string name;  // in the catalog
  PackedName packed;
  std::vector<SealedRegion> regions;
};

// Thread-safe.
class KeptWeights {
 public:
  // `manager`: borrowed; must outlive this.  `inherited`: what the manager passed on.
  KeptWeights(const ServiceManager& manager, std::vector<InheritedDescriptor> inherited)
      : manager_(manager), inherited_(std::move(inherited)) {}

  // Every complete model that came back.  Removes the others from the manager.  Call once.
  std::vector<KeptModel> TakeInherited();

  // Gives a model's descriptors to the manager to keep.  Errors as
  // ServiceManager::StoreDescriptors, and INVALID_ARGUMENT for a name with a line break.
  absl::Status Keep(const std::string& model_name, const PackedName& packed,
                    const std::vector<SealedRegion>& regions);
  // Removes a model from the manager.  Does nothing after LetGo.
  void Drop(const std::string& content_id);
  // Returns when the memory of dropped models is free, or after five seconds.
  void Settle() const;
  // The loader is ending: the manager keeps what it has.
  void LetGo();

 private:
  const ServiceManager& manager_;
  std::vector<InheritedDescriptor> inherited_;
  absl::Mutex mutex_;
  bool let_go_ ABSL_GUARDED_BY(mutex_) = false;
};

// Drops a model at the manager when the last holder of its memory here is gone.
class KeptHold {
 public:
  // `kept` is shared by the store and every hold.
  KeptHold(std::shared_ptr<KeptWeights> kept, std::string content_id)
      : kept_(std::move(kept)), content_id_(std::move(content_id)) {}
  ~KeptHold() { kept_->Drop(content_id_); }
  KeptHold(const KeptHold&) = delete;
  KeptHold& operator=(const KeptHold&) = delete;

 private:
  const std::shared_ptr<KeptWeights> kept_;
  const std::string content_id_;
};

}  // namespace tandem::loader
