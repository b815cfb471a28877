// A folder of model files, opened once: every file is found relative to the open folder, by a
// plain name, without following links.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "services/common/base/unique_fd.h"
#include "services/loader/formats/byte_source.h"

namespace tandem::loader {

// INVALID_ARGUMENT unless `name` is one file name: not empty, at most 255 bytes, no '/', no NUL
// and not "." or "..".
absl::Status CheckFileName(std::string_view name);

// Thread-compatible.
class ModelFolder {
 public:
  // NOT_FOUND, PERMISSION_DENIED; FAILED_PRECONDITION when it is no folder.
  static absl::StatusOr<ModelFolder> Open(const std::string& path);

  // INVALID_ARGUMENT for a bad name, a link, or anything but a regular file; NOT_FOUND.  Errors
  // name the file.  One kind of link is followed: "../../blobs/NAME", which is how Hugging Face's
  // download cache lays a release out, and then only to a regular file in that very folder.
  absl::StatusOr<FileSource> OpenFile(std::string_view name) const;
  // nullopt when there is no such file.
  absl::StatusOr<std::optional<std::string>> ReadOptional(std::string_view name,
                                                          uint64_t max_bytes) const;
  absl::StatusOr<std::string> ReadRequired(std::string_view name, uint64_t max_bytes) const;

  const std::string& path() const { return path_; }
  std::string PathOf(std::string_view name) const;

 private:
  ModelFolder() = default;
  std::string path_;
  UniqueFd fd_;
};

}  // namespace tandem::loader
