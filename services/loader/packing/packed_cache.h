// Packed models kept on disk, so that the next start reads instead of packing.
//
// One file a model (packed_file.h), named by its content and by all that shaped the packing:
//
//   FOLDER/CONTENT-KEY.packed       a complete file
//   FOLDER/CONTENT-KEY.packed.part  a file that is being written, locked by its writer
//
// A file appears by a rename, so several loaders may share a folder.  A damaged file is removed and
// written again.  The folder is kept below a size; the least recently used file is evicted first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/shared_memory.h"
#include "services/loader/packing/packed_file.h"
#include "services/loader/packing/packer.h"
#include "services/loader/packing/packing_plan.h"

namespace tandem::loader {

struct PackedCacheOptions {
  std::string folder;                    // made with mode 0700 when it is not there
  uint64_t max_bytes = 128ull << 30;     // of all files together
  uint64_t min_free_bytes = 4ull << 30;  // left on the disk
};

// The name of a model's file.
struct PackedName {
  std::string content_id;
  PackedKey key;
};

// Hash of what the packer makes of known weights in every format: another number, another layout.
uint64_t LayoutFingerprint();

// The name of a plan's result.
PackedName NameOf(const std::string& content_id, const PackingPlan& plan);

// Thread-safe.
class PackedCache {
 public:
  // INVALID_ARGUMENT: an empty folder, or one that cannot be made or belongs to somebody else.
  static absl::StatusOr<std::unique_ptr<PackedCache>> Create(PackedCacheOptions options);

  // The packed model of a plan, read on `num_threads` threads (0: one a core) into memory of its
  // own.  `progress` as in PackModel.
  // NOT_FOUND: it is not here.  DATA_LOSS: it was, damaged; now it is not.  RESOURCE_EXHAUSTED,
  // CANCELLED: as PackModel.
  absl::StatusOr<PackedModel> Read(const PackedName& name, const PackingPlan& plan, int num_threads,
                                   const std::function<bool(const PackProgress&)>& progress);

  // Keeps `regions` under a name, removing other files of the same content and, where room is
  // needed, those not used for longest.  `keep_going` is asked often: false gives CANCELLED.
  // ALREADY_EXISTS: it is here, or another loader is writing it.  RESOURCE_EXHAUSTED: no room, with
  // the amounts.  Nothing is left behind by a failure.
  absl::Status Write(const PackedName& name, std::span<const Mapping> regions,
                     const std::function<bool()>& keep_going);

  struct Contents {
    uint64_t num_files = 0;
    uint64_t bytes = 0;
  };
  Contents contents() const;
  const std::string& folder() const { return options_.folder; }

 private:
  explicit PackedCache(PackedCacheOptions options) : options_(std::move(options)) {}
  std::string PathOf(const PackedName& name) const;
  absl::Status MakeRoom(uint64_t bytes, const PackedName& name);

  const PackedCacheOptions options_;
};

}  // namespace tandem::loader
