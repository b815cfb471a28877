#include "services/gpu_worker/emulator/driver/ioctls.h"

#include <amdgpu_drm.h>
#include <xf86drm.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "services/gpu_worker/emulator/driver/device_info.h"
#include "services/gpu_worker/emulator/driver/submission.h"

namespace tandem::rdna {
namespace {

constexpr unsigned long RequestNumber(unsigned long request) { return request & 0xff; }

int GemCreate(Device& device, drm_amdgpu_gem_create& call) {
  const drm_amdgpu_gem_create_in in = call.in;
  const uint32_t handle =
      device.buffers().Create(in.bo_size, in.alignment, (in.domains & AMDGPU_GEM_DOMAIN_VRAM) != 0,
                              (in.domains & AMDGPU_GEM_DOMAIN_GTT) != 0,
                              static_cast<uint32_t>(in.domains), in.domain_flags);
  if (handle == 0) return ENOMEM;
  std::memset(&call, 0, sizeof call);
  call.out.handle = handle;
  return 0;
}

int GemMmap(Device& device, drm_amdgpu_gem_mmap& call) {
  const std::optional<BufferObject> buffer = device.buffers().Find(call.in.handle);
  if (!buffer.has_value()) return ENOENT;
  if (buffer->offset == 0) return EPERM;
  call.out.addr_ptr = buffer->offset;
  return 0;
}

int GemVa(Device& device, const drm_amdgpu_gem_va& call) {
  const uint64_t end = call.va_address + call.map_size;
  if (call.map_size == 0 || end < call.va_address ||
      (call.va_address | call.map_size) % 4096 != 0) {
    return EINVAL;
  }
  switch (call.operation) {
    case AMDGPU_VA_OP_UNMAP:
    case AMDGPU_VA_OP_CLEAR:
      device.Unmap(call.va_address, call.map_size);
      return 0;
    case AMDGPU_VA_OP_REPLACE:
      device.Unmap(call.va_address, call.map_size);
      break;
    case AMDGPU_VA_OP_MAP:
      break;
    default:
      return EINVAL;
  }
  // Addresses of sparse resources without memory: what uses them faults.
  if (call.handle == 0) return (call.flags & AMDGPU_VM_PAGE_PRT) != 0 ? 0 : EINVAL;
  const std::optional<BufferObject> buffer = device.buffers().Find(call.handle);
  if (!buffer.has_value()) return ENOENT;
  const uint64_t bytes = (buffer->bytes + 4095) / 4096 * 4096;
  if (call.offset_in_bo > bytes || call.map_size > bytes - call.offset_in_bo) return EINVAL;
  return device.space().Map(call.va_address, call.map_size, buffer->host + call.offset_in_bo)
             ? 0
             : EINVAL;
}

int GemOp(Device& device, drm_amdgpu_gem_op& call) {
  const std::optional<BufferObject> buffer = device.buffers().Find(call.handle);
  if (!buffer.has_value()) return ENOENT;
  if (call.op != AMDGPU_GEM_OP_GET_GEM_CREATE_INFO) return 0;
  drm_amdgpu_gem_create_in info = {};
  info.bo_size = buffer->bytes;
  info.alignment = buffer->alignment;
  info.domains = buffer->requested_domains;
  info.domain_flags = buffer->flags;
  std::memcpy(reinterpret_cast<void*>(call.value), &info, sizeof info);
  return 0;
}

int Context(Device& device, drm_amdgpu_ctx& call) {
  const uint32_t context = call.in.ctx_id, operation = call.in.op;
  if (operation == AMDGPU_CTX_OP_ALLOC_CTX) {
    std::memset(&call.out, 0, sizeof call.out);
    call.out.alloc.ctx_id = device.CreateContext();
    return 0;
  }
  if (operation == AMDGPU_CTX_OP_FREE_CTX) return device.FreeContext(context);
  const std::optional<ContextState> state = device.context_state(context);
  if (!state.has_value()) return EINVAL;
  std::memset(&call.out, 0, sizeof call.out);
  switch (operation) {
    case AMDGPU_CTX_OP_QUERY_STATE:
      call.out.state.reset_status = !state->reset   ? AMDGPU_CTX_NO_RESET
                                    : state->guilty ? AMDGPU_CTX_GUILTY_RESET
                                                    : AMDGPU_CTX_INNOCENT_RESET;
      return 0;
    case AMDGPU_CTX_OP_QUERY_STATE2:
      if (state->reset) call.out.state.flags |= AMDGPU_CTX_QUERY2_FLAGS_RESET;
      if (state->guilty) call.out.state.flags |= AMDGPU_CTX_QUERY2_FLAGS_GUILTY;
      return 0;
    case AMDGPU_CTX_OP_GET_STABLE_PSTATE:
    case AMDGPU_CTX_OP_SET_STABLE_PSTATE:
      return 0;
    default:
      return EINVAL;
  }
}

int WaitCs(Device& device, drm_amdgpu_wait_cs& call) {
  const drm_amdgpu_wait_cs_in in = call.in;
  bool busy = false;
  const Deadline deadline = in.timeout > INT64_MAX ? INT64_MAX : static_cast<Deadline>(in.timeout);
  const int error = device.WaitFor(in.ctx_id, static_cast<RingKind>(in.ip_type), in.ring, in.handle,
                                   deadline, &busy);
  if (error != 0) return error;
  std::memset(&call, 0, sizeof call);
  call.out.status = busy ? 1 : 0;
  return 0;
}

template <typename T>
T& As(void* argument) {
  return *static_cast<T*>(argument);
}

}  // namespace

int Ioctl(Device& device, unsigned long request, void* argument) {
  switch (RequestNumber(request)) {
    case RequestNumber(DRM_IOCTL_AMDGPU_INFO):
      return AnswerInfo(device, As<drm_amdgpu_info>(argument));
    case RequestNumber(DRM_IOCTL_AMDGPU_CTX):
      return Context(device, As<drm_amdgpu_ctx>(argument));
    case RequestNumber(DRM_IOCTL_AMDGPU_GEM_CREATE):
      return GemCreate(device, As<drm_amdgpu_gem_create>(argument));
    case RequestNumber(DRM_IOCTL_AMDGPU_GEM_MMAP):
      return GemMmap(device, As<drm_amdgpu_gem_mmap>(argument));
    case RequestNumber(DRM_IOCTL_AMDGPU_GEM_VA):
      return GemVa(device, As<drm_amdgpu_gem_va>(argument));
    case RequestNumber(DRM_IOCTL_AMDGPU_GEM_OP):
      return GemOp(device, As<drm_amdgpu_gem_op>(argument));
    case RequestNumber(DRM_IOCTL_AMDGPU_CS):
      return SubmitChunks(device, As<drm_amdgpu_cs>(argument));
    case RequestNumber(DRM_IOCTL_AMDGPU_WAIT_CS):
      return WaitCs(device, As<drm_amdgpu_wait_cs>(argument));
    case RequestNumber(DRM_IOCTL_GEM_CLOSE):
      return device.buffers().Close(As<drm_gem_close>(argument).handle) ? 0 : EINVAL;
    case RequestNumber(DRM_IOCTL_AMDGPU_GEM_METADATA):
    case RequestNumber(DRM_IOCTL_AMDGPU_BO_LIST):
    case RequestNumber(DRM_IOCTL_AMDGPU_VM):
      return 0;  // tiling of images; lists of buffers: all are resident here
    default:
      if (device.settings().trace > 0) {
        std::fprintf(stderr, "gpu emulator: ioctl %#lx is not known\n", request);
      }
      return EINVAL;
  }
}

}  // namespace tandem::rdna
