// A packed model on disk: what PackModel made, to be read back.
//
//   FileHeader | uint64 region_bytes[num_regions] | uint64 checksum[num_chunks] | zeros
//              | the regions' bytes, one region after the other
//
// Little-endian.  The regions begin at the next multiple of 4096.  A chunk is a mebibyte of a
// region, or the rest of it; chunks are numbered through all regions.  Checksums are XXH3 of 64
// bits.  The key identifies the source of the bytes and their layout: a file with another key
// belongs to another model.  Tensors and shards follow from the plan, which is part of the key.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/base/shared_memory.h"
#include "services/common/base/unique_fd.h"

namespace tandem::loader {

struct PackedKey {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const PackedKey&, const PackedKey&) = default;
};

inline constexpr uint64_t kChunkBytes = 1 << 20;
inline constexpr uint64_t kPackedFileAlignment = 4096;

// A file whose header has been checked.  Thread-safe after opening.
class PackedFile {
 public:
  // NOT_FOUND: there is none.  DATA_LOSS: not a packed file, damaged, cut short, of another key or
  // of other regions.  PERMISSION_DENIED: another user could have written it.
  static absl::StatusOr<PackedFile> Open(const std::string& path, const PackedKey& key,
                                         const std::vector<uint64_t>& region_bytes);

  size_t num_chunks() const { return chunks_.size(); }
  // Region a chunk belongs to, its place there, and its size.
  uint32_t RegionOf(size_t chunk) const { return chunks_[chunk].region; }
  uint64_t RegionOffsetOf(size_t chunk) const { return chunks_[chunk].region_offset; }
  uint64_t BytesOf(size_t chunk) const { return chunks_[chunk].bytes; }

  // Reads a chunk to its place in `region`, the memory of its region, and checks it there.
  // `past_cache`: what the page cache does not hold is read without going through it, where the
  // file system allows. DATA_LOSS: the checksum is wrong or the file ends early.
  // RESOURCE_EXHAUSTED: no memory.
  absl::Status ReadChunk(size_t chunk, std::span<std::byte> region, bool past_cache) const;

 private:
  struct Chunk {
    uint32_t region = 0;
    uint64_t region_offset = 0;
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
    uint64_t checksum = 0;
  };
  absl::Status Read(const Chunk& chunk, bool past_cache, std::byte* to) const;

  std::string path_;
  UniqueFd fd_;
  UniqueFd direct_fd_;  // invalid where the file system reads through its cache alone
  std::vector<Chunk> chunks_;
};

// Writes a whole file to `fd`, which is empty.  `keep_going` is asked between chunks: false gives
// CANCELLED.  RESOURCE_EXHAUSTED: the disk is full, found out before most of the work where the
// file system reserves space.  What was written stays for the caller to remove.
absl::Status WritePackedFile(int fd, const PackedKey& key, std::span<const Mapping> regions,
                             const std::function<bool()>& keep_going);

// Size of the file of a model with these regions.
uint64_t PackedFileBytes(const std::vector<uint64_t>& region_bytes);

}  // namespace tandem::loader
