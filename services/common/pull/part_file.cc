#include "services/common/pull/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::pull {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSpareBytes = 64 << 20;  // left free on the disk
constexpr mode_t kFileMode = 0644;

absl::Status SystemError(const std::string& path, const char* what, int error) {
  const std::string text = absl::StrFormat("%s %s: %s", what, path, std::strerror(error));
  if (error == EACCES || error == EPERM || error == EROFS) return absl::PermissionDeniedError(text);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

absl::StatusOr<UniqueFd> TakeLock(const PartPaths& paths) {
  for (;;) {
    UniqueFd fd(::open(paths.lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
    if (!fd.valid()) return SystemError(paths.lock, "making", errno);
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      return absl::AlreadyExistsError(absl::StrFormat(
          "%s is being pulled by another process, which holds %s", paths.file, paths.lock));
    }
    // Whoever held it before may have removed it since it was opened.
    struct stat ours {
    }, there{};
    if (::fstat(fd.get(), &ours) == 0 && ::stat(paths.lock.c_str(), &there) == 0 &&
        ours.st_ino == there.st_ino && ours.st_dev == there.st_dev) {
      return fd;
    }
  }
}

absl::Status SyncFolder(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || ::fsync(fd.get()) != 0) return SystemError(folder, "syncing", errno);
  return absl::OkStatus();
}

std::string Gigabytes(uint64_t bytes) {
  return absl::StrFormat("%.2f GB", static_cast<double>(bytes) * 1e-9);
}

}  // namespace

PartPaths::PartPaths(const std::string& path) : file(path) {
  const fs::path whole(path);
  const std::string hidden = (whole.parent_path() / ("." + whole.filename().string())).string();
  part = hidden + ".part";
  journal = hidden + ".part.json";
  lock = hidden + ".lock";
}

absl::Status WriteWhole(const std::string& path, std::string_view text) {
  const std::string fresh = path + ".new";
  {
    const UniqueFd fd(
        ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kFileMode));
    if (!fd.valid()) return SystemError(fresh, "making", errno);
    while (!text.empty()) {
      const ssize_t wrote = ::write(fd.get(), text.data(), text.size());
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) return SystemError(fresh, "writing", errno);
      text.remove_prefix(static_cast<size_t>(wrote));
    }
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return SystemError(path, "renaming to", errno);
  return absl::OkStatus();
}

absl::StatusOr<bool> RemovePart(const std::string& path) {
  const PartPaths paths(path);
  std::error_code error;
  const bool any = fs::exists(paths.part, error) || fs::exists(paths.journal, error);
  if (!any && !fs::exists(paths.lock, error)) return false;
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd lock, TakeLock(paths));
  for (const std::string& name : {paths.part, paths.journal, paths.lock}) fs::remove(name, error);
  return any;
}

absl::StatusOr<std::unique_ptr<PartFile>> PartFile::Open(const std::string& path,
                                                         const PartIdentity& identity) {
  PartPaths paths(path);
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return SystemError(folder.string(), "making the folder", error.value());
  TANDEM_ASSIGN_OR_RETURN(UniqueFd lock, TakeLock(paths));
  std::unique_ptr<PartFile> part(new PartFile(std::move(paths), std::move(lock)));
  part->fd_.Reset(
      ::open(part->paths_.part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode));
  if (!part->fd_.valid()) return SystemError(part->paths_.part, "opening", errno);
  if (part->ReadJournal(identity)) {
    TANDEM_RETURN_IF_ERROR(part->Reserve());
  } else {
    TANDEM_RETURN_IF_ERROR(part->Restart(identity));
  }
  return part;
}

PartFile::~PartFile() {
  std::error_code ignored;
  if (kept_ && done_bytes() > 0) {
    Save().IgnoreError();
  } else if (kept_) {
    Discard();
  }
  fs::remove(paths_.lock, ignored);  // while it is held: nobody else takes the one that goes
}

bool PartFile::ReadJournal(const PartIdentity& identity) {
  std::ifstream file(paths_.journal, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) return false;
  const auto json = nlohmann::json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  struct stat info {};
  if (!json.is_object() || ::fstat(fd_.get(), &info) != 0) return false;
  const auto size = json.find("size"), content = json.find("content"), etag = json.find("etag"),
             done = json.find("done");
  if (size == json.end() || *size != identity.size || content == json.end() ||
      !content->is_string() || *content != identity.content || done == json.end() ||
      !done->is_array() || static_cast<uint64_t>(info.st_size) != identity.size) {
    return false;
  }
  for (const auto& range : *done) {
    if (!range.is_array() || range.size() != 2 || !range[0].is_number_unsigned() ||
        !range[1].is_number_unsigned()) {
      return false;
    }
    const auto begin = range[0].get<uint64_t>(), end = range[1].get<uint64_t>();
    if (begin >= end || end > identity.size) return false;
    Mark(begin, end);
  }
  identity_ = identity;
  if (etag != json.end() && etag->is_string()) etag_ = etag->get<std::string>();
  return true;
}

absl::Status PartFile::Restart(const PartIdentity& identity) {
  std::error_code ignored;
  fs::remove(paths_.journal, ignored);
  done_.clear();
  etag_.clear();
  identity_ = identity;
  if (::ftruncate(fd_.get(), 0) != 0) return SystemError(paths_.part, "emptying", errno);
  return Reserve();
}

absl::Status PartFile::Reserve() {
  struct stat info {};
  struct statvfs disk {};
  if (::fstat(fd_.get(), &info) != 0 || ::fstatvfs(fd_.get(), &disk) != 0) {
    return SystemError(paths_.part, "looking at", errno);
  }
  const uint64_t there = static_cast<uint64_t>(info.st_blocks) * 512;
  const uint64_t needed = identity_.size > there ? identity_.size - there : 0;
  const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  const auto full = [&] {
    kept_ = kept_ && done_bytes() > 0;
    if (!kept_) Discard();
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s needs %s more, and its disk has %s free: make room, or choose another folder",
        paths_.file, Gigabytes(needed), Gigabytes(free)));
  };
  if (needed > 0 && (needed > UINT64_MAX - kSpareBytes || needed + kSpareBytes > free))
    return full();
  // Taken at once where the file system can, so that the disk is not full in the middle.
  if (needed > 0 && ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(identity_.size)) != 0) {
    if (errno == ENOSPC || errno == EDQUOT) return full();
    if (::ftruncate(fd_.get(), static_cast<off_t>(identity_.size)) != 0) {
      return SystemError(paths_.part, "growing", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status PartFile::Write(uint64_t offset, std::string_view bytes) {
  const uint64_t begin = offset;
  while (!bytes.empty()) {
    const ssize_t wrote =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return SystemError(paths_.part, "writing", errno);
    offset += static_cast<uint64_t>(wrote);
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  if (offset > begin) Mark(begin, offset);
  return absl::OkStatus();
}

void PartFile::Mark(uint64_t begin, uint64_t end) {
  auto next = done_.upper_bound(begin);
  if (next != done_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
    end = std::max(end, next->second);
    next = done_.erase(next);
  }
  while (next != done_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = done_.erase(next);
  }
  done_[begin] = end;
}

uint64_t PartFile::done_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [begin, end] : done_) bytes += end - begin;
  return bytes;
}

std::vector<PartFile::Range> PartFile::Missing() const {
  std::vector<Range> missing;
  uint64_t at = 0;
  for (const auto& [begin, end] : done_) {
    if (begin > at) missing.emplace_back(at, begin);
    at = end;
  }
  if (at < identity_.size) missing.emplace_back(at, identity_.size);
  return missing;
}

absl::Status PartFile::Save() {
  nlohmann::json done = nlohmann::json::array();
  for (const auto& [begin, end] : done_) done.push_back({begin, end});
  // Bytes before the word of them: the journal never claims what a crash could lose.
  if (::fdatasync(fd_.get()) != 0) return SystemError(paths_.part, "syncing", errno);
  return WriteWhole(
      paths_.journal,
      nlohmann::json{
          {"size", identity_.size}, {"content", identity_.content}, {"etag", etag_}, {"done", done}}
              .dump() +
          "\n");
}

absl::Status PartFile::Finish() {
  if (::fsync(fd_.get()) != 0) return SystemError(paths_.part, "syncing", errno);
  if (::rename(paths_.part.c_str(), paths_.file.c_str()) != 0) {
    return SystemError(paths_.file, "renaming to", errno);
  }
  kept_ = false;
  std::error_code ignored;
  fs::remove(paths_.journal, ignored);
  return SyncFolder(paths_.file);
}

void PartFile::Discard() {
  std::error_code ignored;
  fs::remove(paths_.part, ignored);
  fs::remove(paths_.journal, ignored);
  done_.clear();
  kept_ = false;
}

}  // namespace tandem::pull
