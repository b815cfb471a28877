#include "tools/tandem/serve/runtime_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/rpc/unix_socket.h"

namespace tandem {
namespace {

// Between a process's taking of the lock and its writing of the file.
constexpr absl::Duration kWritePatience = absl::Seconds(1);
constexpr absl::Duration kPollInterval = absl::Milliseconds(20);

std::string PathIn(const std::string& runtime_dir) { return runtime_dir + "/serve.pid"; }

// Of the open file, not of the process: a lock of the other kind would go with the first descriptor
// of the file that is closed.
bool Lock(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  return ::fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// Looks at the lock without taking it: whoever wants it at this moment gets it.
bool IsLocked(int fd) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  return ::fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// Whether the file is still the one at the path: its holder removes it at the end.
bool IsAt(int fd, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_ino == there.st_ino && open.st_dev == there.st_dev;
}

RunningServe ReadHolder(int fd) {
  char text[PATH_MAX + 32];
  const ssize_t length = ::pread(fd, text, sizeof(text), 0);
  RunningServe holder;
  std::istringstream lines(std::string(text, length > 0 ? static_cast<size_t>(length) : 0));
  if (lines >> holder.pid) {
    lines.ignore();
    std::getline(lines, holder.log_dir);
  }
  return holder;
}

// Directory and file are this user's.
absl::Status CheckOwners(int fd, const std::string& runtime_dir) {
  struct stat file {};
  struct stat folder {};
  if (::fstat(fd, &file) != 0 || ::stat(runtime_dir.c_str(), &folder) != 0) {
    return absl::InternalError(
        absl::StrFormat("runtime directory %s: %s", runtime_dir, std::strerror(errno)));
  }
  for (const struct stat* info : {&folder, &file}) {
    if (info->st_uid == ::geteuid()) continue;
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s belongs to user %d, not to %d, and could name any process: run this as that user",
        info == &folder ? runtime_dir : PathIn(runtime_dir), info->st_uid, ::geteuid()));
  }
  return absl::OkStatus();
}

// Whether that process is this user's and has the file open, as no other that was given its id has.
bool HasOpen(pid_t pid, int fd) {
  const std::string process = absl::StrFormat("/proc/%d", pid);
  struct stat owner {};
  struct stat file {};
  if (::stat(process.c_str(), &owner) != 0 || owner.st_uid != ::geteuid() ||
      ::fstat(fd, &file) != 0) {
    return false;
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry(process + "/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    struct stat open {};
    if (::stat(entry->path().c_str(), &open) == 0 && open.st_ino == file.st_ino &&
        open.st_dev == file.st_dev) {
      return true;
    }
  }
  return false;
}

absl::Status FileError(const std::string& path) {
  return absl::InternalError(absl::StrFormat("%s: %s", path, std::strerror(errno)));
}

}  // namespace

absl::StatusOr<RuntimeLock> RuntimeLock::Take(const std::string& runtime_dir,
                                              const std::string& log_dir) {
  const std::string path = PathIn(runtime_dir);
  while (true) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return FileError(path);
    if (!Lock(fd.get())) {
      TANDEM_ASSIGN_OR_RETURN(const auto holder, FindServe(runtime_dir));
      if (!holder.has_value()) continue;  // it has just ended
      return absl::AlreadyExistsError(
          absl::StrFormat("already running, pid %d (runtime directory %s): `tandem stop` ends it; "
                          "--runtime-dir starts another beside it",
                          holder->pid, runtime_dir));
    }
    if (!IsAt(fd.get(), path)) continue;
    const std::string text = absl::StrFormat("%d\n%s\n", ::getpid(), log_dir);
    if (::ftruncate(fd.get(), 0) != 0 ||
        ::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
      return FileError(path);
    }
    return RuntimeLock(path, std::move(fd));
  }
}

RuntimeLock::~RuntimeLock() {
  if (fd_.valid()) ::unlink(path_.c_str());
}

absl::Status RunningServe::Signal(int number) const {
  if (::syscall(SYS_pidfd_send_signal, process.get(), number, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrFormat("signal to pid %d: %s", pid, std::strerror(errno)));
}

absl::StatusOr<std::optional<RunningServe>> FindServe(const std::string& runtime_dir) {
  const std::string path = PathIn(runtime_dir);
  const absl::Time patience = absl::Now() + kWritePatience;
  while (true) {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!fd.valid()) {
      if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
      return absl::PermissionDeniedError(absl::StrFormat("%s: %s", path, std::strerror(errno)));
    }
    TANDEM_RETURN_IF_ERROR(CheckOwners(fd.get(), runtime_dir));
    if (!IsLocked(fd.get())) return std::nullopt;
    RunningServe holder = ReadHolder(fd.get());
    if (holder.pid > 0) {
      // Before the look at it: from then on the id cannot lead to another process.
      holder.process.Reset(static_cast<int>(::syscall(SYS_pidfd_open, holder.pid, 0)));
      if (holder.process.valid() && HasOpen(holder.pid, fd.get())) return holder;
    }
    if (absl::Now() > patience) {
      if (holder.pid <= 0) return holder;
      return absl::FailedPreconditionError(
          absl::StrFormat("%s names pid %d, which is not the process that holds it (another "
                          "container's?): end that "
                          "one, or remove the file",
                          path, holder.pid));
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::StatusOr<bool> AwaitStaleServices(const std::string& runtime_dir, absl::Duration patience,
                                        void (*say)(const std::string& text)) {
  const absl::Time until = absl::Now() + patience;
  bool said = false;
  while (true) {
    absl::Status status;
    for (const char* name : {"gateway", "gpu", "npu", "loader"}) {
      status.Update(RemoveStaleSocket(absl::StrFormat("%s/%s.sock", runtime_dir, name)));
    }
    if (status.ok()) return said;
    if (!absl::IsAlreadyExists(status) || absl::Now() > until) return status;
    if (!said) {
      say(absl::StrFormat("waiting for services of an earlier `tandem serve` to end in %s",
                          runtime_dir));
    }
    said = true;
    absl::SleepFor(absl::Milliseconds(100));
  }
}

}  // namespace tandem
