// A file that is still coming: its bytes, and which of them are there.
//
// For FOLDER/NAME there are FOLDER/.NAME.part (the bytes), .NAME.part.json (which are there, of
// what file) and .NAME.lock (held by the writer).  FOLDER/NAME itself appears by Finish alone,
// whole.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"

namespace tandem::pull {

// What the bytes belong to.  Two pulls may share a partial file when these are equal.
struct PartIdentity {
  uint64_t size = 0;
  std::string content;  // the checksum, else the host's entity tag
  bool operator==(const PartIdentity&) const = default;
};

// The paths of a file's companions.
struct PartPaths {
  explicit PartPaths(const std::string& path);
  std::string file, part, journal, lock;
};

// Single-thread.
class PartFile {
 public:
  using Range = std::pair<uint64_t, uint64_t>;  // [begin, end)

  // Takes the lock and goes on with the bytes that are there, if they belong to `identity`; else
  // begins again.  Folders are made.  ALREADY_EXISTS: another process holds the lock;
  // PERMISSION_DENIED or UNAVAILABLE: the file system's error; RESOURCE_EXHAUSTED: not enough
  // space.
  static absl::StatusOr<std::unique_ptr<PartFile>> Open(const std::string& path,
                                                        const PartIdentity& identity);
  // Saves the journal and lets go of the lock.  Bytes stay for the next time.
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  // Forgets all bytes; from now on they belong to `identity`.  Errors as for Open.
  absl::Status Restart(const PartIdentity& identity);
  // RESOURCE_EXHAUSTED: the disk is full; UNAVAILABLE: another error of the file system.
  absl::Status Write(uint64_t offset, std::string_view bytes);
  // Writes down which bytes are there.
  absl::Status Save();

  const PartIdentity& identity() const { return identity_; }
  uint64_t done_bytes() const;
  std::vector<Range> Missing() const;
  // The entity tag that the bytes came with; kept with them.
  const std::string& etag() const { return etag_; }
  void set_etag(std::string etag) { etag_ = std::move(etag); }
  int fd() const { return fd_.get(); }

  // Puts the bytes under the file's name, on disk, in place of an older file.  REQUIRES nothing
  // missing.
  absl::Status Finish();
  // Removes the bytes.
  void Discard();

 private:
  PartFile(PartPaths paths, UniqueFd lock) : paths_(std::move(paths)), lock_(std::move(lock)) {}
  bool ReadJournal(const PartIdentity& identity);
  absl::Status Reserve();
  void Mark(uint64_t begin, uint64_t end);

  const PartPaths paths_;
  UniqueFd lock_;
  UniqueFd fd_;
  PartIdentity identity_;
  std::string etag_;
  std::map<uint64_t, uint64_t> done_;  // begin -> end; apart from each other
  bool kept_ = true;                   // the part is there when this goes
};

// Removes `path`'s companions, unless somebody is writing them: ALREADY_EXISTS.  True: there were
// some.
absl::StatusOr<bool> RemovePart(const std::string& path);

// Creates or replaces a small file, whole or not at all.
absl::Status WriteWhole(const std::string& path, std::string_view text);

}  // namespace tandem::pull
