#include "services/npu_worker/emulator/driver/ioctls.h"

#include <drm/amdxdna_accel.h>
#include <drm/drm.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <ctime>
#include <limits>

#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {
namespace {

constexpr uint64_t kMaxArguments = 4095;
constexpr uint32_t kMaxConfigBytes = 4096;
constexpr uint32_t kFirstSyncObject = 0x1000;  // plus the context

// A pointer that a process passes as a number.
template <typename T>
T* Pointer(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}

absl::Time DeadlineIn(int64_t nanoseconds) { return absl::Now() + absl::Nanoseconds(nanoseconds); }

Errno CreateContext(DriverClient& client, amdxdna_drm_create_hwctx* request) {
  if (request->ext != 0 || request->ext_flags != 0) return EINVAL;
  if (request->qos_p == 0) return EFAULT;
  if (const Errno error = client.CreateContext(request->num_tiles, &request->handle); error != 0) {
    return error;
  }
  request->syncobj_handle = kFirstSyncObject + request->handle;
  request->umq_doorbell = AMDXDNA_INVALID_DOORBELL_OFFSET;
  return 0;
}

Errno ConfigureContext(DriverClient& client, const amdxdna_drm_config_hwctx* request) {
  if (request->pad != 0) return EINVAL;
  if (request->param_type != DRM_AMDXDNA_HWCTX_CONFIG_CU) return EOPNOTSUPP;
  if (request->param_val_size > kMaxConfigBytes) return E2BIG;
  const auto* config = Pointer<const amdxdna_hwctx_param_config_cu>(request->param_val);
  const size_t bytes = sizeof(*config) + config->num_cus * sizeof(amdxdna_cu_config);
  if (bytes > request->param_val_size) {
    return Refuse(EINVAL, absl::StrFormat("%d configurations in %d bytes", config->num_cus,
                                          request->param_val_size));
  }
  std::vector<uint32_t> handles;
  for (uint16_t i = 0; i < config->num_cus; ++i) handles.push_back(config->cu_configs[i].cu_bo);
  return client.ConfigureContext(request->handle, handles);
}

Errno CreateBuffer(DriverClient& client, amdxdna_drm_create_bo* request) {
  if (request->flags != 0) return EINVAL;
  if (request->type < AMDXDNA_BO_SHARE || request->type > AMDXDNA_BO_CMD) return EINVAL;
  if (request->vaddr == 0) {
    return client.buffers().Create(static_cast<BufferKind>(request->type), request->size,
                                   &request->handle);
  }
  if (client.device().faults().faults().no_user_pointers) return EINVAL;
  const auto* table = Pointer<const amdxdna_drm_va_tbl>(request->vaddr);
  if (request->type != AMDXDNA_BO_SHARE || table->num_entries != 1) {
    return Refuse(EOPNOTSUPP, absl::StrFormat("user memory of %d parts", table->num_entries));
  }
  return client.buffers().Wrap(Pointer<void>(table->va_entries[0].vaddr), table->va_entries[0].len,
                               &request->handle);
}

Errno GetBufferInfo(DriverClient& client, amdxdna_drm_get_bo_info* request) {
  if (request->ext != 0 || request->ext_flags != 0 || request->pad != 0) return EINVAL;
  const auto buffer = client.buffers().Find(request->handle);
  if (buffer == nullptr) return ENOENT;
  request->map_offset = buffer->map_offset;
  request->vaddr = buffer->user_memory ? reinterpret_cast<uintptr_t>(buffer->host) : kNoAddress;
  request->xdna_addr = buffer->address;
  return 0;
}

Errno SyncBuffer(DriverClient& client, const amdxdna_drm_sync_bo* request) {
  const auto buffer = client.buffers().Find(request->handle);
  if (buffer == nullptr) return ENOENT;
  const bool fits =
      request->offset < buffer->bytes && request->offset + request->size >= request->offset;
  return fits ? 0 : EINVAL;
}

Errno Submit(DriverClient& client, amdxdna_drm_exec_cmd* request) {
  if (request->ext != 0 || request->ext_flags != 0) return EINVAL;
  if (request->type != AMDXDNA_CMD_SUBMIT_EXEC_BUF || request->cmd_count != 1 ||
      request->arg_count > kMaxArguments) {
    return Refuse(EINVAL, absl::StrFormat("submission of type %d with %d commands, %d arguments",
                                          request->type, request->cmd_count, request->arg_count));
  }
  const auto* arguments = Pointer<const uint32_t>(request->args);
  return client.Submit(request->hwctx, static_cast<uint32_t>(request->cmd_handles),
                       {arguments, request->arg_count}, reinterpret_cast<uint64_t*>(&request->seq));
}

Errno WaitCommand(DriverClient& client, const amdxdna_drm_wait_cmd* request) {
  const absl::Time deadline = request->timeout == 0
                                  ? absl::InfiniteFuture()
                                  : DeadlineIn(int64_t{request->timeout} * 1000000);
  return client.Wait(request->hwctx, request->seq, deadline);
}

// The time-out is a time of CLOCK_MONOTONIC, in nanoseconds.
absl::Time MonotonicDeadline(int64_t nanoseconds) {
  if (nanoseconds == std::numeric_limits<int64_t>::max()) return absl::InfiniteFuture();
  struct timespec now {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return DeadlineIn(nanoseconds - (now.tv_sec * int64_t{1000000000} + now.tv_nsec));
}

Errno WaitTimeline(DriverClient& client, const drm_syncobj_timeline_wait* request) {
  const absl::Time deadline = MonotonicDeadline(request->timeout_nsec);
  for (uint32_t i = 0; i < request->count_handles; ++i) {
    const uint32_t object = Pointer<const uint32_t>(request->handles)[i];
    if (object < kFirstSyncObject) return ENOENT;
    const Errno error = client.Wait(object - kFirstSyncObject,
                                    Pointer<const uint64_t>(request->points)[i], deadline);
    if (error != 0) return error;
  }
  return 0;
}

Errno ExportBuffer(DriverClient& client, drm_prime_handle* request) {
  return client.buffers().Export(request->handle, &request->fd);
}

Errno ImportBuffer(DriverClient& client, drm_prime_handle* request) {
  return client.buffers().Import(request->fd, &request->handle);
}

}  // namespace

Errno Ioctl(DriverClient& client, unsigned long request, void* argument) {
  const bool submits = _IOC_NR(request) == _IOC_NR(DRM_IOCTL_AMDXDNA_EXEC_CMD);
  if (client.device().faults().IsGone(submits)) return ENODEV;
  if (argument == nullptr) return EFAULT;
  // DRM finds a request by its number alone.
  switch (_IOC_NR(request)) {
    case _IOC_NR(DRM_IOCTL_AMDXDNA_CREATE_HWCTX):
      return CreateContext(client, static_cast<amdxdna_drm_create_hwctx*>(argument));
    case _IOC_NR(DRM_IOCTL_AMDXDNA_DESTROY_HWCTX):
      return client.DestroyContext(static_cast<amdxdna_drm_destroy_hwctx*>(argument)->handle);
    case _IOC_NR(DRM_IOCTL_AMDXDNA_CONFIG_HWCTX):
      return ConfigureContext(client, static_cast<amdxdna_drm_config_hwctx*>(argument));
    case _IOC_NR(DRM_IOCTL_AMDXDNA_CREATE_BO):
      return CreateBuffer(client, static_cast<amdxdna_drm_create_bo*>(argument));
    case _IOC_NR(DRM_IOCTL_AMDXDNA_GET_BO_INFO):
      return GetBufferInfo(client, static_cast<amdxdna_drm_get_bo_info*>(argument));
    case _IOC_NR(DRM_IOCTL_AMDXDNA_SYNC_BO):
      return SyncBuffer(client, static_cast<amdxdna_drm_sync_bo*>(argument));
    case _IOC_NR(DRM_IOCTL_AMDXDNA_EXEC_CMD):
      return Submit(client, static_cast<amdxdna_drm_exec_cmd*>(argument));
    case _IOC_NR(DRM_IOCTL_AMDXDNA_WAIT_CMD):
      return WaitCommand(client, static_cast<amdxdna_drm_wait_cmd*>(argument));
    case _IOC_NR(DRM_IOCTL_AMDXDNA_GET_INFO):
      return GetInfo(client, argument);
    case _IOC_NR(DRM_IOCTL_AMDXDNA_GET_ARRAY):
      return GetArray(client, argument);
    case _IOC_NR(DRM_IOCTL_GEM_CLOSE):
      return client.buffers().Close(static_cast<drm_gem_close*>(argument)->handle);
    case _IOC_NR(DRM_IOCTL_PRIME_HANDLE_TO_FD):
      return ExportBuffer(client, static_cast<drm_prime_handle*>(argument));
    case _IOC_NR(DRM_IOCTL_PRIME_FD_TO_HANDLE):
      return ImportBuffer(client, static_cast<drm_prime_handle*>(argument));
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT):
      return WaitTimeline(client, static_cast<drm_syncobj_timeline_wait*>(argument));
    case _IOC_NR(DRM_IOCTL_SYNCOBJ_DESTROY):
      return 0;  // it ends with its context
    default:
      return Refuse(EOPNOTSUPP, absl::StrFormat("request %#x is not emulated", request));
  }
}

}  // namespace tandem::npu::emulator
