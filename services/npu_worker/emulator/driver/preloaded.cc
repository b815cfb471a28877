// The emulated amdxdna driver below an unmodified XRT: preloaded, it answers what a process asks of
// /dev/accel/accel0 and shows it the device in /sys.  Everything else goes to the C library.
//
// The tree of device files lies beside this library, in a folder for each profile.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "services/npu_worker/emulator/driver/client.h"
#include "services/npu_worker/emulator/driver/context_handler.h"
#include "services/npu_worker/emulator/driver/device_paths.h"
#include "services/npu_worker/emulator/driver/ioctls.h"

namespace tandem::npu::emulator {
namespace {

// The C library's own function.
template <typename Function>
Function* Original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

DriverProfile TheProfile() {
  const auto profile = ProfileFromEnvironment();
  if (profile.ok()) return *profile;
  std::fprintf(stderr, "npu driver (emulated): %s\n", profile.status().ToString().c_str());
  std::_Exit(70);
}

DriverDevice& TheDevice() {
  static DriverDevice* const device = [] {
    const Faults faults = Faults::FromEnvironment();
    const DriverProfile profile = TheProfile();
    return new DriverDevice(profile, faults,
                            [faults, profile](Configurations configurations, uint32_t num_columns,
                                              std::function<void()> on_load) {
                              return MakeContextHandler(
                                  configurations,
                                  {.generation = profile.generation, .num_columns = num_columns},
                                  faults, std::move(on_load));
                            });
  }();
  return *device;
}

const std::string& TheTree() {
  static const std::string* const tree = [] {
    Dl_info self{};
    ::dladdr(reinterpret_cast<const void*>(&TheDevice), &self);
    const std::filesystem::path folder = std::filesystem::path(self.dli_fname).parent_path();
    return new std::string((folder / TheProfile().name).string());
  }();
  return *tree;
}

std::string Real(const char* path) { return path == nullptr ? "" : RealPath(TheTree(), path); }

// What each open descriptor of the node stands for.
struct OpenDescriptors {
  std::mutex mutex;
  std::map<int, std::shared_ptr<DriverClient>> clients;
};
OpenDescriptors& Descriptors() {
  static OpenDescriptors* const descriptors = new OpenDescriptors;
  return *descriptors;
}

std::shared_ptr<DriverClient> ClientOf(int fd) {
  OpenDescriptors& descriptors = Descriptors();
  const std::lock_guard lock(descriptors.mutex);
  const auto found = descriptors.clients.find(fd);
  return found == descriptors.clients.end() ? nullptr : found->second;
}

template <typename... Arguments>
int Open(const char* function, const char* path, int flags, Arguments... arguments) {
  const auto original = Original<int(const char*, int, ...)>(function);
  const int fd = original(Real(path).c_str(), flags, arguments...);
  if (fd < 0 || std::string_view(path) != kDeviceNode) return fd;
  auto client = std::make_shared<DriverClient>(TheDevice());
  OpenDescriptors& descriptors = Descriptors();
  const std::lock_guard lock(descriptors.mutex);
  descriptors.clients[fd] = std::move(client);
  return fd;
}

int OpenAt(const char* function, int folder, const char* path, int flags, mode_t mode) {
  if (folder == AT_FDCWD || path[0] == '/') return Open("open", path, flags, mode);
  return Original<int(int, const char*, int, ...)>(function)(folder, path, flags, mode);
}

void* Map(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  const auto original = Original<void*(void*, size_t, int, int, int, off_t)>("mmap");
  const auto client = fd < 0 ? nullptr : ClientOf(fd);
  if (client == nullptr) return original(address, bytes, protection, flags, fd, offset);
  const auto buffer = client->buffers().FindByOffset(static_cast<uint64_t>(offset));
  if (buffer == nullptr || !buffer->fd.valid() || bytes > buffer->bytes) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  // A real driver's pages are locked by the driver; these need not be.
  return original(address, bytes, protection, flags & ~MAP_LOCKED, buffer->fd.get(), 0);
}

}  // namespace
}  // namespace tandem::npu::emulator

#define PRELOADED extern "C" __attribute__((visibility("default")))
// The mode that open(2) takes where it may create a file.
#define MODE_ARGUMENT(last)             \
  mode_t mode = 0;                      \
  if ((last) & (O_CREAT | O_TMPFILE)) { \
    va_list list;                       \
    va_start(list, last);               \
    mode = va_arg(list, mode_t);        \
    va_end(list);                       \
  }

namespace emulator = tandem::npu::emulator;

PRELOADED void tandem_npu_driver_counts(emulator::DriverCounts* counts) {
  *counts = emulator::TheDevice().counts();
}

PRELOADED int open(const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return emulator::Open("open", path, flags, mode);
}
PRELOADED int open64(const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return emulator::Open("open64", path, flags, mode);
}
PRELOADED int __open_2(const char* path, int flags) { return emulator::Open("open", path, flags); }
PRELOADED int openat(int folder, const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return emulator::OpenAt("openat", folder, path, flags, mode);
}
PRELOADED int openat64(int folder, const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return emulator::OpenAt("openat64", folder, path, flags, mode);
}
PRELOADED FILE* fopen(const char* path, const char* mode) {
  return emulator::Original<FILE*(const char*, const char*)>("fopen")(emulator::Real(path).c_str(),
                                                                      mode);
}
PRELOADED FILE* fopen64(const char* path, const char* mode) {
  return emulator::Original<FILE*(const char*, const char*)>("fopen64")(
      emulator::Real(path).c_str(), mode);
}
PRELOADED DIR* opendir(const char* path) {
  return emulator::Original<DIR*(const char*)>("opendir")(emulator::Real(path).c_str());
}
PRELOADED int stat(const char* path, struct stat* info) {
  return emulator::Original<int(const char*, struct stat*)>("stat")(emulator::Real(path).c_str(),
                                                                    info);
}
PRELOADED int lstat(const char* path, struct stat* info) {
  return emulator::Original<int(const char*, struct stat*)>("lstat")(emulator::Real(path).c_str(),
                                                                     info);
}
PRELOADED int access(const char* path, int mode) {
  return emulator::Original<int(const char*, int)>("access")(emulator::Real(path).c_str(), mode);
}
PRELOADED ssize_t readlink(const char* path, char* target, size_t bytes) {
  return emulator::Original<ssize_t(const char*, char*, size_t)>("readlink")(
      emulator::Real(path).c_str(), target, bytes);
}
PRELOADED char* realpath(const char* path, char* resolved) {
  const auto original = emulator::Original<char*(const char*, char*)>("realpath");
  const std::string real = emulator::Real(path);
  char* result = original(real.c_str(), resolved);
  if (result == nullptr || real == path) return result;
  const std::string shown = emulator::ShownPath(emulator::TheTree(), result);
  std::memmove(result, shown.c_str(), shown.size() + 1);  // it is the shorter one
  return result;
}
PRELOADED int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  const auto client = emulator::ClientOf(fd);
  if (client == nullptr) {
    return emulator::Original<int(int, unsigned long, ...)>("ioctl")(fd, request, argument);
  }
  const emulator::Errno error = emulator::Ioctl(*client, request, argument);
  if (error == 0) return 0;
  errno = error;
  return -1;
}
PRELOADED void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return emulator::Map(address, bytes, protection, flags, fd, offset);
}
PRELOADED void* mmap64(void* address, size_t bytes, int protection, int flags, int fd,
                       off_t offset) {
  return emulator::Map(address, bytes, protection, flags, fd, offset);
}
PRELOADED int close(int fd) {
  std::shared_ptr<emulator::DriverClient> client;  // ends after the lock
  {
    emulator::OpenDescriptors& descriptors = emulator::Descriptors();
    const std::lock_guard lock(descriptors.mutex);
    const auto found = descriptors.clients.find(fd);
    if (found != descriptors.clients.end()) {
      client = std::move(found->second);
      descriptors.clients.erase(found);
    }
  }
  return emulator::Original<int(int)>("close")(fd);
}
