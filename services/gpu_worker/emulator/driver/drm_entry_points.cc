// libdrm.so.2 as RADV of Mesa 25.0.7 calls it, and ioctl(2): newer drivers call the kernel
// themselves.  The library is preloaded, so that the dynamic linker finds these first.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xf86drm.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "services/gpu_worker/emulator/driver/ioctls.h"
#include "services/gpu_worker/emulator/driver/the_device.h"

namespace tandem::rdna {
namespace {

// As libdrm: -1 and errno, or 0.
int FromErrno(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

bool IsOurs(int fd) {
  struct stat mine, theirs;
  return fstat(TheDevice().backing().file(), &mine) == 0 && fstat(fd, &theirs) == 0 &&
         mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

// The driver opens the node by its path, and maps buffers by what it opened: so the path is that of
// the memory's file.
struct Node {
  char path[64] = {};
  char* nodes[DRM_NODE_MAX] = {};
  drmPciBusInfo bus = {};
  drmPciDeviceInfo info = {};
  drmDevice device = {};

  Node() {
    const Chip& chip = TheDevice().chip();
    std::snprintf(path, sizeof path, "/proc/self/fd/%d", TheDevice().backing().file());
    nodes[DRM_NODE_PRIMARY] = nodes[DRM_NODE_RENDER] = path;
    bus.bus = 0xc1;
    info.vendor_id = info.subvendor_id = 0x1002;
    info.device_id = static_cast<uint16_t>(chip.pci_device);
    info.revision_id = static_cast<uint8_t>(chip.pci_revision);
    device.nodes = nodes;
    device.available_nodes = 1 << DRM_NODE_PRIMARY | 1 << DRM_NODE_RENDER;
    device.bustype = DRM_BUS_PCI;
    device.businfo.pci = &bus;
    device.deviceinfo.pci = &info;
  }
};

drmDevicePtr TheNode() {
  static Node* const node = new Node;
  return &node->device;
}

int Wait(const uint32_t* handles, const uint64_t* points, unsigned count, int64_t deadline,
         unsigned flags, uint32_t* first) {
  std::vector<SyncTable::WaitFor> objects(count);
  for (unsigned i = 0; i < count; ++i) objects[i] = {handles[i], points ? points[i] : 0};
  const SyncTable::WaitHow how = {
      .all = (flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL) != 0,
      .wait_for_submit = (flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT) != 0,
      .available = (flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE) != 0};
  const int error = TheDevice().sync().Wait(objects, how, deadline, first);
  if (error == 0) return 0;
  errno = error;
  return -error;
}

}  // namespace
}  // namespace tandem::rdna

using tandem::rdna::FromErrno;
using tandem::rdna::TheDevice;

extern "C" {

int drmIoctl(int, unsigned long request, void* argument) {
  return FromErrno(tandem::rdna::Ioctl(TheDevice(), request, argument));
}

int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if ((request >> 8 & 0xff) == DRM_IOCTL_BASE && tandem::rdna::IsOurs(fd)) {
    return drmIoctl(fd, request, argument);
  }
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

int drmGetDevices2(uint32_t, drmDevicePtr* devices, int max_devices) {
  if (devices != nullptr && max_devices > 0) devices[0] = tandem::rdna::TheNode();
  return 1;
}

int drmGetDevice2(int, uint32_t, drmDevicePtr* device) {
  *device = tandem::rdna::TheNode();
  return 0;
}

void drmFreeDevice(drmDevicePtr*) {}
void drmFreeDevices(drmDevicePtr*, int) {}

drmVersionPtr drmGetVersion(int) {
  auto* version = static_cast<drmVersionPtr>(std::calloc(1, sizeof(drmVersion)));
  version->version_major = 3;
  version->version_minor = 61;
  version->name = strdup("amdgpu");
  version->name_len = 6;
  return version;
}

void drmFreeVersion(drmVersionPtr version) {
  if (version == nullptr) return;
  std::free(version->name);
  std::free(version);
}

int drmGetCap(int, uint64_t capability, uint64_t* value) {
  *value = capability == DRM_CAP_SYNCOBJ || capability == DRM_CAP_SYNCOBJ_TIMELINE ? 1 : 0;
  return 0;
}

int drmSyncobjCreate(int, uint32_t flags, uint32_t* handle) {
  *handle = TheDevice().sync().Create((flags & DRM_SYNCOBJ_CREATE_SIGNALED) != 0);
  return 0;
}

int drmSyncobjDestroy(int, uint32_t handle) {
  return FromErrno(TheDevice().sync().Destroy(handle));
}

int drmSyncobjReset(int, const uint32_t* handles, uint32_t count) {
  return FromErrno(TheDevice().sync().Reset({handles, count}));
}

int drmSyncobjSignal(int, const uint32_t* handles, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (const int error = TheDevice().sync().Signal(handles[i], 0)) return FromErrno(error);
  }
  return 0;
}

int drmSyncobjTimelineSignal(int, const uint32_t* handles, uint64_t* points, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (const int error = TheDevice().sync().Signal(handles[i], points[i])) return FromErrno(error);
  }
  return 0;
}

int drmSyncobjWait(int, uint32_t* handles, unsigned count, int64_t deadline, unsigned flags,
                   uint32_t* first) {
  return tandem::rdna::Wait(handles, nullptr, count, deadline, flags, first);
}

int drmSyncobjTimelineWait(int, uint32_t* handles, uint64_t* points, unsigned count,
                           int64_t deadline, unsigned flags, uint32_t* first) {
  return tandem::rdna::Wait(handles, points, count, deadline, flags, first);
}

int drmSyncobjQuery2(int, uint32_t* handles, uint64_t* points, uint32_t count, uint32_t flags) {
  const bool submitted = (flags & DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED) != 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (const int error = TheDevice().sync().Query(handles[i], submitted, &points[i])) {
      return FromErrno(error);
    }
  }
  return 0;
}

int drmSyncobjQuery(int fd, uint32_t* handles, uint64_t* points, uint32_t count) {
  return drmSyncobjQuery2(fd, handles, points, count, 0);
}

int drmSyncobjTransfer(int, uint32_t to, uint64_t to_point, uint32_t from, uint64_t from_point,
                       uint32_t flags) {
  const bool later = (flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT) != 0;
  return FromErrno(TheDevice().sync().Transfer(to, to_point, from, from_point, later));
}

}  // extern "C"
