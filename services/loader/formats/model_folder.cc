#include "services/loader/formats/model_folder.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_format.h"

namespace tandem::loader {
namespace {

constexpr int kFileFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
constexpr std::string_view kCachePrefix = "../../blobs/";

// A link of Hugging Face's cache; anything else is refused.
absl::StatusOr<UniqueFd> OpenCacheLink(int folder, const std::string& name) {
  char target[PATH_MAX];
  const ssize_t length = ::readlinkat(folder, name.c_str(), target, sizeof(target));
  if (length < 0) return absl::ErrnoToStatus(errno, "cannot be read as a link");
  std::string_view blob(target, static_cast<size_t>(length));
  if (!blob.starts_with(kCachePrefix) || !CheckFileName(blob.substr(kCachePrefix.size())).ok()) {
    return absl::InvalidArgumentError("is a link; copy the file into the model's folder");
  }
  blob.remove_prefix(kCachePrefix.size());
  const UniqueFd blobs(
      ::openat(folder, "../../blobs", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!blobs.valid()) return absl::ErrnoToStatus(errno, "is a link whose folder cannot be opened");
  UniqueFd fd(::openat(blobs.get(), std::string(blob).c_str(), kFileFlags));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "is a link whose target cannot be opened");
  return fd;
}

}  // namespace

absl::Status CheckFileName(std::string_view name) {
  const bool plain = !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
                     name.find('/') == std::string_view::npos &&
                     name.find('\0') == std::string_view::npos;
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("\"%s\" is no plain file name", std::string(name.substr(0, 80))));
}

absl::StatusOr<ModelFolder> ModelFolder::Open(const std::string& path) {
  ModelFolder folder;
  folder.path_ = path;
  folder.fd_.Reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.fd_.valid()) return InFile(path, absl::ErrnoToStatus(errno, "cannot be opened"));
  return folder;
}

std::string ModelFolder::PathOf(std::string_view name) const {
  return absl::StrFormat("%s/%s", path_, std::string(name));
}

absl::StatusOr<FileSource> ModelFolder::OpenFile(std::string_view name) const {
  TANDEM_RETURN_IF_ERROR(InFile(path_, CheckFileName(name)));
  const std::string file_name(name);
  UniqueFd fd(::openat(fd_.get(), file_name.c_str(), kFileFlags));
  if (!fd.valid() && errno == ELOOP) {
    absl::StatusOr<UniqueFd> linked = OpenCacheLink(fd_.get(), file_name);
    if (!linked.ok()) return InFile(PathOf(name), linked.status());
    fd = *std::move(linked);
  }
  if (!fd.valid()) return InFile(PathOf(name), absl::ErrnoToStatus(errno, "cannot be opened"));
  absl::StatusOr<FileSource> file = FileSource::FromFd(std::move(fd));
  if (!file.ok()) return InFile(PathOf(name), file.status());
  return file;
}

absl::StatusOr<std::optional<std::string>> ModelFolder::ReadOptional(std::string_view name,
                                                                     uint64_t max_bytes) const {
  const absl::StatusOr<FileSource> file = OpenFile(name);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  absl::StatusOr<std::string> text = ReadAll(*file, max_bytes);
  if (!text.ok()) return InFile(PathOf(name), text.status());
  return *std::move(text);
}

absl::StatusOr<std::string> ModelFolder::ReadRequired(std::string_view name,
                                                      uint64_t max_bytes) const {
  TANDEM_ASSIGN_OR_RETURN(std::optional<std::string> text, ReadOptional(name, max_bytes));
  if (!text.has_value()) return absl::NotFoundError(absl::StrFormat("%s is missing", PathOf(name)));
  return *std::move(text);
}

}  // namespace tandem::loader
