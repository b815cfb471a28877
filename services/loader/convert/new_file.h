// A file that appears whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"

namespace tandem::loader {

// ALREADY_EXISTS: "PATH is there already: ...".
absl::Status AlreadyThere(const std::string& path);

// Written beside its later name, and removed again unless it gets that name.  Write may be called
// from several threads; the rest is thread-compatible.
class NewFile {
 public:
  // RESOURCE_EXHAUSTED: no room for `bytes`, found here and not after an hour's work; NOT_FOUND: no
  // such folder; INVALID_ARGUMENT: another error of the file system.
  static absl::StatusOr<NewFile> Create(const std::string& path, uint64_t bytes);
  NewFile(NewFile&& other) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  const std::string& temporary() const { return temporary_; }  // its name until then
  absl::Status Write(const void* data, uint64_t bytes, uint64_t offset) const;
  // Gives it its name.  ALREADY_EXISTS: there is such a file, and not `overwrite`.
  absl::Status Publish(bool overwrite);

 private:
  explicit NewFile(std::string path) : path_(std::move(path)) {}
  std::string path_, temporary_;
  UniqueFd fd_;
};

}  // namespace tandem::loader
