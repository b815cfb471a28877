#include "services/loader/packing/packed_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"
#include "services/loader/packing/memory_budget.h"
#include "services/loader/packing/parallel_for.h"
#include "services/loader/packing/region_memory.h"

namespace tandem::loader {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".packed";
constexpr const char* kPartSuffix = ".packed.part";

struct Entry {
  std::string path;
  uint64_t bytes = 0;
  int64_t used_ns = 0;  // last read or written
};

std::vector<Entry> ListEntries(const std::string& folder, const char* suffix) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    struct stat info {};
    if (!path.ends_with(suffix) || ::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) {
      continue;
    }
    entries.push_back({path, static_cast<uint64_t>(info.st_blocks) * 512,
                       info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec});
  }
  return entries;
}

// Whether `fd` is what `path` names now.
bool IsAt(int fd, const std::string& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Opens a part and locks it; invalid when somebody else has it.
UniqueFd LockPart(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid() || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return UniqueFd();
  if (!IsAt(fd.get(), path)) return UniqueFd();  // finished or removed since it was opened
  return fd;
}

// Parts whose writer is gone.
void RemoveAbandonedParts(const std::string& folder) {
  for (const Entry& part : ListEntries(folder, kPartSuffix)) {
    if (const UniqueFd fd = LockPart(part.path); fd.valid()) ::unlink(part.path.c_str());
  }
}

}  // namespace

PackedName NameOf(const std::string& content_id, const PackingPlan& plan) {
  std::vector<uint64_t> numbers = {LayoutFingerprint(), plan.region_bytes.size()};
  numbers.insert(numbers.end(), plan.region_bytes.begin(), plan.region_bytes.end());
  for (const PlannedTensor& planned : plan.tensors) {
    const PackedTensor& tensor = planned.tensor;
    numbers.insert(numbers.end(), {static_cast<uint64_t>(tensor.role), tensor.layer_idx,
                                   tensor.shape.rows, tensor.shape.cols, tensor.shards.size()});
    for (const Shard& shard : tensor.shards) {
      numbers.insert(numbers.end(), {shard.first_row, shard.num_rows, shard.region, shard.offset,
                                     static_cast<uint64_t>(shard.dtype)});
    }
  }
  const uint64_t content = XXH3_64bits(content_id.data(), content_id.size());
  const XXH128_hash_t hash =
      XXH3_128bits_withSeed(numbers.data(), numbers.size() * sizeof(uint64_t), content);
  return {content_id, {hash.high64, hash.low64}};
}

absl::StatusOr<std::unique_ptr<PackedCache>> PackedCache::Create(PackedCacheOptions options) {
  if (options.folder.empty()) return absl::InvalidArgumentError("packed cache: no folder is named");
  std::error_code error;
  fs::create_directories(fs::path(options.folder).parent_path(), error);
  struct stat info {};
  if ((::mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) ||
      ::stat(options.folder.c_str(), &info) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("packed cache %s: %s", options.folder, std::strerror(errno)));
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() ||
      (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("packed cache %s: not a directory that only uid %d can write",
                        options.folder, ::geteuid()));
  }
  RemoveAbandonedParts(options.folder);
  return std::unique_ptr<PackedCache>(new PackedCache(std::move(options)));
}

std::string PackedCache::PathOf(const PackedName& name) const {
  return absl::StrFormat("%s/%s-%016x%016x%s", options_.folder, name.content_id, name.key.high,
                         name.key.low, kSuffix);
}

PackedCache::Contents PackedCache::contents() const {
  Contents contents;
  for (const Entry& entry : ListEntries(options_.folder, kSuffix)) {
    ++contents.num_files;
    contents.bytes += entry.bytes;
  }
  return contents;
}

absl::StatusOr<PackedModel> PackedCache::Read(
    const PackedName& name, const PackingPlan& plan, int num_threads,
    const std::function<bool(const PackProgress&)>& progress) {
  const std::string path = PathOf(name);
  const auto discard_if_damaged = [&path](const absl::Status& status) {
    if (absl::IsDataLoss(status)) ::unlink(path.c_str());
    return status;
  };
  absl::StatusOr<PackedFile> file = PackedFile::Open(path, name.key, plan.region_bytes);
  if (!file.ok()) return discard_if_damaged(file.status());
  TANDEM_RETURN_IF_ERROR(CheckMemoryBudget(plan.packed_bytes));
  // Through the page cache only where both copies fit: else each would push the other out.
  const bool past_cache = AvailableMemoryBytes() / 2 < plan.packed_bytes;

  PackedModel model;
  model.source_bytes = plan.source_bytes;
  std::vector<Mapping> mappings;
  for (const uint64_t bytes : plan.region_bytes) {
    TANDEM_ASSIGN_OR_RETURN(RegionMemory memory, MakeRegionMemory(bytes));
    model.regions.push_back({std::move(memory.fd), bytes});
    mappings.push_back(std::move(memory.mapping));
  }
  // All regions side by side: the kernel hands out pages of one memfd to one thread at a time.
  std::vector<size_t> order(file->num_chunks());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return file->RegionOffsetOf(a) < file->RegionOffsetOf(b);
  });
  std::atomic<uint64_t> done_bytes{0};
  const auto read_chunk = [&](size_t item, int) {
    const size_t chunk = order[item];
    done_bytes.fetch_add(file->BytesOf(chunk), std::memory_order_relaxed);
    return file->ReadChunk(chunk, mappings[file->RegionOf(chunk)].bytes(), past_cache);
  };
  const auto watch = [&] {
    const double share = static_cast<double>(done_bytes.load(std::memory_order_relaxed)) /
                         static_cast<double>(plan.packed_bytes);
    if (!progress ||
        progress({"reading packed weights",
                  static_cast<uint64_t>(share * static_cast<double>(plan.source_bytes)),
                  plan.source_bytes})) {
      return absl::OkStatus();
    }
    return absl::CancelledError("reading was stopped");
  };
  const absl::Status read =
      ParallelFor(ThreadCount(num_threads), file->num_chunks(), read_chunk, watch);
  if (!read.ok()) return discard_if_damaged(read);
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now; nothing depends on it
  for (const PlannedTensor& planned : plan.tensors) model.tensors.push_back(planned.tensor);
  if (progress) progress({"read", plan.source_bytes, plan.source_bytes});
  return model;
}

absl::Status PackedCache::MakeRoom(uint64_t bytes, const PackedName& name) {
  // The same content in another layout, or cut into other regions, is not read again: it goes
  // first, then what was not used for longest.
  std::vector<Entry> entries = ListEntries(options_.folder, kSuffix);
  const auto is_stale = [&name](const Entry& entry) {
    return fs::path(entry.path).filename().string().starts_with(name.content_id + "-");
  };
  std::sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) {
    return std::pair(!is_stale(a), a.used_ns) < std::pair(!is_stale(b), b.used_ns);
  });
  uint64_t kept = 0;
  for (const Entry& entry : entries) kept += entry.bytes;
  struct statvfs disk {};
  const bool known = ::statvfs(options_.folder.c_str(), &disk) == 0;
  uint64_t free_bytes = known ? uint64_t{disk.f_bavail} * disk.f_frsize : 0;
  if (bytes > options_.max_bytes || free_bytes + kept < bytes + options_.min_free_bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "no room for %d bytes of packed weights: %s may hold %d and holds %d, its disk has %d free "
        "and is left %d",
        bytes, options_.folder, options_.max_bytes, kept, free_bytes, options_.min_free_bytes));
  }
  for (const Entry& entry : entries) {
    const bool fits =
        kept + bytes <= options_.max_bytes && free_bytes >= bytes + options_.min_free_bytes;
    if (fits && !is_stale(entry)) break;
    LogInfo("packed weights removed", {{"file", entry.path}, {"bytes", entry.bytes}});
    ::unlink(entry.path.c_str());
    kept -= entry.bytes;
    free_bytes += entry.bytes;
  }
  return absl::OkStatus();
}

absl::Status PackedCache::Write(const PackedName& name, std::span<const Mapping> regions,
                                const std::function<bool()>& keep_going) {
  const std::string path = PathOf(name);
  const std::string part = path + ".part";
  const UniqueFd fd = LockPart(part);
  if (!fd.valid()) {
    return absl::AlreadyExistsError(absl::StrFormat("%s: another loader is writing it", part));
  }
  std::vector<uint64_t> region_bytes;
  for (const Mapping& region : regions) region_bytes.push_back(region.size());
  absl::Status status;
  if (::access(path.c_str(), F_OK) == 0) status = absl::AlreadyExistsError(path);
  if (status.ok()) status = MakeRoom(PackedFileBytes(region_bytes), name);
  if (status.ok() && ::ftruncate(fd.get(), 0) != 0) {
    status = absl::InternalError(absl::StrFormat("%s: %s", part, std::strerror(errno)));
  }
  if (status.ok()) status = WritePackedFile(fd.get(), name.key, regions, keep_going);
  if (status.ok() && ::rename(part.c_str(), path.c_str()) != 0) {
    status = absl::InternalError(absl::StrFormat("%s: %s", path, std::strerror(errno)));
  }
  if (!status.ok()) ::unlink(part.c_str());
  return status;
}

}  // namespace tandem::loader
