// libdrm_amdgpu.so.1 as RADV of Mesa 25.0.7 calls it.
#include <amdgpu.h>
#include <amdgpu_drm.h>

#include <cerrno>
#include <cstddef>
#include <optional>

#include "services/gpu_worker/emulator/driver/shared_memory.h"
#include "services/gpu_worker/emulator/driver/the_device.h"

using tandem::rdna::CheckUserMemory;
using tandem::rdna::TheDevice;

struct amdgpu_bo {
  uint32_t handle;
};

struct amdgpu_va {
  uint64_t address, bytes;
};

extern "C" {

int amdgpu_device_initialize(int, uint32_t* major, uint32_t* minor, amdgpu_device_handle* handle) {
  *major = 3;
  *minor = 61;
  *handle = reinterpret_cast<amdgpu_device_handle>(&TheDevice());
  return 0;
}

int amdgpu_device_deinitialize(amdgpu_device_handle) { return 0; }

int amdgpu_device_get_fd(amdgpu_device_handle) { return TheDevice().backing().file(); }

const char* amdgpu_get_marketing_name(amdgpu_device_handle) {
  return TheDevice().chip().marketing_name;
}

int amdgpu_query_sw_info(amdgpu_device_handle, amdgpu_sw_info info, void* value) {
  if (info != amdgpu_sw_info_address32_hi) return -EINVAL;
  *static_cast<uint32_t*>(value) = 0xffff8000;
  return 0;
}

int amdgpu_bo_alloc(amdgpu_device_handle, amdgpu_bo_alloc_request* request, amdgpu_bo_handle* bo) {
  const uint32_t domains = request->preferred_heap;
  const uint32_t handle = TheDevice().buffers().Create(
      request->alloc_size, request->phys_alignment, (domains & AMDGPU_GEM_DOMAIN_VRAM) != 0,
      (domains & AMDGPU_GEM_DOMAIN_GTT) != 0, domains, request->flags);
  if (handle == 0) return -ENOMEM;
  *bo = new amdgpu_bo{handle};
  return 0;
}

int amdgpu_bo_free(amdgpu_bo_handle bo) {
  const bool known = TheDevice().buffers().Close(bo->handle);
  delete bo;
  return known ? 0 : -EINVAL;
}

int amdgpu_bo_export(amdgpu_bo_handle bo, amdgpu_bo_handle_type type, uint32_t* handle) {
  if (type != amdgpu_bo_handle_type_kms && type != amdgpu_bo_handle_type_kms_noimport) {
    return -EINVAL;  // descriptors for other processes
  }
  *handle = bo->handle;
  return 0;
}

int amdgpu_bo_import(amdgpu_device_handle, amdgpu_bo_handle_type type, uint32_t fd,
                     amdgpu_bo_import_result* result) {
  if (type != amdgpu_bo_handle_type_dma_buf_fd) return -EINVAL;
  const uint32_t handle = TheDevice().buffers().Import(
      static_cast<int>(fd), TheDevice().settings().memory_files_are_dmabufs);
  if (handle == 0) return -EINVAL;
  *result = {.buf_handle = new amdgpu_bo{handle},
             .alloc_size = TheDevice().buffers().Find(handle)->bytes};
  return 0;
}

int amdgpu_create_bo_from_user_mem(amdgpu_device_handle, void* host, uint64_t bytes,
                                   amdgpu_bo_handle* bo) {
  if (reinterpret_cast<uintptr_t>(host) % 4096 != 0 || bytes % 4096 != 0) return -EINVAL;
  if (const int error = CheckUserMemory(static_cast<std::byte*>(host)); error != 0) return -error;
  const uint32_t handle = TheDevice().buffers().Wrap(static_cast<std::byte*>(host), bytes);
  if (handle == 0) return -ENOMEM;
  *bo = new amdgpu_bo{handle};
  return 0;
}

int amdgpu_va_range_alloc(amdgpu_device_handle, amdgpu_gpu_va_range, uint64_t bytes,
                          uint64_t alignment, uint64_t required, uint64_t* address,
                          amdgpu_va_handle* handle, uint64_t flags) {
  if (required != 0) {
    if (!TheDevice().AllocateAddressesAt(required, bytes)) return -ENOMEM;
    *address = required;
  } else {
    const std::optional<uint64_t> found =
        TheDevice().AllocateAddresses(bytes, alignment, (flags & AMDGPU_VA_RANGE_32_BIT) != 0,
                                      (flags & AMDGPU_VA_RANGE_HIGH) != 0);
    if (!found.has_value()) return -ENOMEM;
    *address = *found;
  }
  *handle = new amdgpu_va{*address, bytes};
  return 0;
}

int amdgpu_va_range_free(amdgpu_va_handle handle) {
  if (handle == nullptr) return 0;
  TheDevice().FreeAddresses(handle->address, handle->bytes);
  delete handle;
  return 0;
}

}  // extern "C"
