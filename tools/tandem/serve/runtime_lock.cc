#include "tools/tandem/serve/runtime_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
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

RunningServe ReadHolder(const std::string& path) {
  RunningServe holder;
  std::ifstream file(path);
  if (file >> holder.pid) {
    file.ignore();
    std::getline(file, holder.log_dir);
  }
  return holder;
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
      const auto holder = FindServe(runtime_dir);
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

std::optional<RunningServe> FindServe(const std::string& runtime_dir) {
  const std::string path = PathIn(runtime_dir);
  const absl::Time patience = absl::Now() + kWritePatience;
  while (true) {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd.valid() || !IsLocked(fd.get())) return std::nullopt;
    RunningServe holder = ReadHolder(path);
    if (holder.pid > 0 || absl::Now() > patience) return holder;
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
