#include "services/loader/packing/packed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/loader/packing/region_memory.h"

namespace tandem::loader {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kMagic[8] = {'T', 'N', 'D', 'M', 'P', 'A', 'C', 'K'};
constexpr uint64_t kVersion = 2;

struct FileHeader {
  char magic[8] = {};
  uint64_t version = 0;
  PackedKey key;
  uint64_t num_regions = 0;
  uint64_t num_chunks = 0;
  uint64_t data_offset = 0;
  uint64_t table_hash = 0;   // of what lies between this header and the zeros
  uint64_t header_hash = 0;  // of what lies before it
};
static_assert(sizeof(FileHeader) == 72);

uint64_t Hash(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }
uint64_t HashOf(const FileHeader& header) {
  return Hash(&header, offsetof(FileHeader, header_hash));
}

uint64_t ChunksOf(uint64_t region_bytes) { return (region_bytes + kChunkBytes - 1) / kChunkBytes; }

// What a file of these regions must look like but for its checksums.
FileHeader MakeHeader(const PackedKey& key, const std::vector<uint64_t>& region_bytes) {
  FileHeader header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.version = kVersion;
  header.key = key;
  header.num_regions = region_bytes.size();
  for (const uint64_t bytes : region_bytes) header.num_chunks += ChunksOf(bytes);
  const uint64_t end =
      sizeof(FileHeader) + (header.num_regions + header.num_chunks) * sizeof(uint64_t);
  header.data_offset =
      (end + kPackedFileAlignment - 1) / kPackedFileAlignment * kPackedFileAlignment;
  return header;
}

absl::Status Errno(const std::string& what) {
  const int error = errno;
  const std::string message = absl::StrFormat("%s: %s", what, std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    case ENOENT:
      return absl::NotFoundError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status WriteAll(int fd, const std::byte* data, uint64_t bytes, uint64_t offset,
                      const char* what) {
  while (bytes > 0) {
    const ssize_t done = ::pwrite(fd, data, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return Errno(what);
    data += done;
    offset += static_cast<uint64_t>(done);
    bytes -= static_cast<uint64_t>(done);
  }
  return absl::OkStatus();
}

// How many of `bytes` could be read: fewer at the file's end, or where reading failed.
uint64_t ReadSome(int fd, std::byte* to, uint64_t bytes, uint64_t offset, int flags) {
  uint64_t done = 0;
  while (done < bytes) {
    const iovec piece = {to + done, bytes - done};
    const ssize_t got = ::preadv2(fd, &piece, 1, static_cast<off_t>(offset + done), flags);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<uint64_t>(got);
  }
  return done;
}

}  // namespace

uint64_t PackedFileBytes(const std::vector<uint64_t>& region_bytes) {
  uint64_t bytes = MakeHeader({}, region_bytes).data_offset;
  for (const uint64_t region : region_bytes) bytes += region;
  return bytes;
}

absl::StatusOr<PackedFile> PackedFile::Open(const std::string& path, const PackedKey& key,
                                            const std::vector<uint64_t>& region_bytes) {
  PackedFile file;
  file.path_ = path;
  file.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.fd_.valid()) return Errno(path);
  struct stat info {};
  if (::fstat(file.fd_.get(), &info) != 0) return Errno(path);
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(
        absl::StrFormat("%s: owned by uid %d, mode %o: other users could have written it", path,
                        info.st_uid, info.st_mode & 07777));
  }
  const auto damaged = [&path](const char* why) {
    return absl::DataLossError(absl::StrFormat("%s: %s", path, why));
  };
  const FileHeader expected = MakeHeader(key, region_bytes);
  FileHeader header;
  if (ReadSome(file.fd_.get(), reinterpret_cast<std::byte*>(&header), sizeof(header), 0, 0) !=
      sizeof(header)) {
    return damaged("no packed model, or cut short");
  }
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.version != kVersion ||
      header.header_hash != HashOf(header)) {
    return damaged("no packed model of this version, or its header is damaged");
  }
  if (header.key != key || header.num_regions != expected.num_regions ||
      header.num_chunks != expected.num_chunks || header.data_offset != expected.data_offset) {
    return damaged("packed from other weights, or in another layout");
  }
  if (static_cast<uint64_t>(info.st_size) != PackedFileBytes(region_bytes)) {
    return damaged("cut short or too long");
  }
  std::vector<uint64_t> table(header.num_regions + header.num_chunks);
  const uint64_t table_bytes = table.size() * sizeof(uint64_t);
  if (ReadSome(file.fd_.get(), reinterpret_cast<std::byte*>(table.data()), table_bytes,
               sizeof(header), 0) != table_bytes ||
      Hash(table.data(), table_bytes) != header.table_hash ||
      !std::equal(region_bytes.begin(), region_bytes.end(), table.begin())) {
    return damaged("its table is damaged");
  }
  uint64_t file_offset = header.data_offset;
  size_t next = region_bytes.size();
  for (uint32_t region = 0; region < region_bytes.size(); ++region) {
    for (uint64_t offset = 0; offset < region_bytes[region]; offset += kChunkBytes) {
      const uint64_t bytes = std::min(kChunkBytes, region_bytes[region] - offset);
      file.chunks_.push_back({region, offset, file_offset, bytes, table[next++]});
      file_offset += bytes;
    }
  }
  file.direct_fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT));
  return file;
}

absl::Status PackedFile::Read(const Chunk& chunk, bool past_cache, std::byte* to) const {
  uint64_t done = 0;
  if (past_cache && direct_fd_.valid()) {
    done = ReadSome(fd_.get(), to, chunk.bytes, chunk.file_offset, RWF_NOWAIT) /
           kPackedFileAlignment * kPackedFileAlignment;
    done += ReadSome(direct_fd_.get(), to + done, chunk.bytes - done, chunk.file_offset + done, 0);
  }
  done += ReadSome(fd_.get(), to + done, chunk.bytes - done, chunk.file_offset + done, 0);
  if (done == chunk.bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: %d of %d bytes at %d could be read", path_, done,
                                             chunk.bytes, chunk.file_offset));
}

absl::Status PackedFile::ReadChunk(size_t index, std::span<std::byte> region,
                                   bool past_cache) const {
  const Chunk& chunk = chunks_[index];
  TANDEM_CHECK(chunk.region_offset + chunk.bytes <= region.size());
  std::byte* const to = region.data() + chunk.region_offset;
  // Stored to a mapping and not written to the memfd: one writer at a time is let into a file.
  TANDEM_RETURN_IF_ERROR(Populate(to, chunk.bytes));
  TANDEM_RETURN_IF_ERROR(Read(chunk, past_cache, to));
  if (Hash(to, chunk.bytes) == chunk.checksum) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: the %d bytes at %d have changed", path_,
                                             chunk.bytes, chunk.file_offset));
}

absl::Status WritePackedFile(int fd, const PackedKey& key, std::span<const Mapping> regions,
                             const std::function<bool()>& keep_going) {
  std::vector<uint64_t> table;
  for (const Mapping& region : regions) {
    TANDEM_CHECK(region.size() % kPackedFileAlignment == 0);
    table.push_back(region.size());
  }
  FileHeader header = MakeHeader(key, table);
  constexpr const char* kWhat = "writing packed weights";
  // Unsupported is no error; too little space is.
  if (::fallocate(fd, 0, 0, static_cast<off_t>(PackedFileBytes(table))) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS) {
    return Errno(kWhat);
  }
  uint64_t offset = header.data_offset;
  for (const Mapping& region : regions) {
    for (uint64_t at = 0; at < region.size(); at += kChunkBytes) {
      if (!keep_going()) return absl::CancelledError("writing packed weights was stopped");
      const uint64_t bytes = std::min(kChunkBytes, region.size() - at);
      table.push_back(Hash(region.data() + at, bytes));
      TANDEM_RETURN_IF_ERROR(WriteAll(fd, region.data() + at, bytes, offset, kWhat));
      offset += bytes;
    }
  }
  const uint64_t table_bytes = table.size() * sizeof(uint64_t);
  TANDEM_RETURN_IF_ERROR(WriteAll(fd, reinterpret_cast<const std::byte*>(table.data()), table_bytes,
                                  sizeof(header), kWhat));
  header.table_hash = Hash(table.data(), table_bytes);
  header.header_hash = HashOf(header);
  return WriteAll(fd, reinterpret_cast<const std::byte*>(&header), sizeof(header), 0, kWhat);
}

}  // namespace tandem::loader
