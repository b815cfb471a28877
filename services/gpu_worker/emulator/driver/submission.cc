#include "services/gpu_worker/emulator/driver/submission.h"

#include <cerrno>
#include <cstdio>
#include <optional>
#include <span>
#include <utility>

namespace tandem::rdna {
namespace {

// As long as the kernel waits for another thread to submit what this one waits for.
constexpr int64_t kWaitForSubmitMs = 5000;

template <typename T>
std::span<const T> Entries(const drm_amdgpu_cs_chunk& chunk) {
  return {reinterpret_cast<const T*>(chunk.chunk_data), size_t{chunk.length_dw} * 4 / sizeof(T)};
}

int AddBuffer(const drm_amdgpu_cs_chunk_ib& ib, Submission& submission) {
  if (ib.ip_type != AMDGPU_HW_IP_GFX && ib.ip_type != AMDGPU_HW_IP_COMPUTE) {
    std::fprintf(stderr, "gpu emulator: a submission to engine %u: it is not emulated\n",
                 ib.ip_type);
    return EINVAL;
  }
  const auto kind = static_cast<RingKind>(ib.ip_type);
  if (submission.buffers.empty()) {
    submission.kind = kind;
    submission.ring = ib.ring;
  } else if (submission.kind != kind || submission.ring != ib.ring) {
    std::fprintf(stderr, "gpu emulator: a submission to two rings at once: it is not emulated\n");
    return EINVAL;
  }
  if (ib.ib_bytes % 4 != 0) return EINVAL;
  submission.buffers.push_back({ib.va_start, ib.ib_bytes / 4});
  return 0;
}

int AddWait(Device& device, uint32_t handle, uint64_t point, bool wait_for_submit,
            Submission& submission) {
  FencePtr fence;
  if (const int error = device.sync().Find(handle, point, wait_for_submit,
                                           DeadlineIn(kWaitForSubmitMs), &fence)) {
    return error;
  }
  submission.waits.push_back(std::move(fence));
  return 0;
}

int AddSignal(Device& device, uint32_t handle, uint64_t point, Submission& submission) {
  uint64_t last = 0;
  if (device.sync().Query(handle, false, &last) != 0) return ENOENT;
  submission.signals.push_back({handle, point});
  return 0;
}

int AddUserFence(Device& device, const drm_amdgpu_cs_chunk_fence& fence, Submission& submission) {
  const std::optional<BufferObject> buffer = device.buffers().Find(fence.handle);
  if (!buffer.has_value()) return ENOENT;
  if (fence.offset % 8 != 0 || fence.offset + 8 > buffer->bytes) return EINVAL;
  submission.user_fence = reinterpret_cast<uint64_t*>(buffer->host + fence.offset);
  return 0;
}

int AddChunk(Device& device, const drm_amdgpu_cs_chunk& chunk, Submission& submission) {
  int error = 0;
  switch (chunk.chunk_id) {
    case AMDGPU_CHUNK_ID_IB:
      if (Entries<drm_amdgpu_cs_chunk_ib>(chunk).empty()) return EINVAL;
      return AddBuffer(Entries<drm_amdgpu_cs_chunk_ib>(chunk)[0], submission);
    case AMDGPU_CHUNK_ID_FENCE:
      if (Entries<drm_amdgpu_cs_chunk_fence>(chunk).empty()) return EINVAL;
      return AddUserFence(device, Entries<drm_amdgpu_cs_chunk_fence>(chunk)[0], submission);
    case AMDGPU_CHUNK_ID_BO_HANDLES:
      return 0;  // all buffers are resident
    case AMDGPU_CHUNK_ID_SYNCOBJ_IN:
      for (const auto& sem : Entries<drm_amdgpu_cs_chunk_sem>(chunk)) {
        if ((error = AddWait(device, sem.handle, 0, false, submission)) != 0) break;
      }
      return error;
    case AMDGPU_CHUNK_ID_SYNCOBJ_OUT:
      for (const auto& sem : Entries<drm_amdgpu_cs_chunk_sem>(chunk)) {
        if ((error = AddSignal(device, sem.handle, 0, submission)) != 0) break;
      }
      return error;
    case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT:
      for (const auto& sem : Entries<drm_amdgpu_cs_chunk_syncobj>(chunk)) {
        const bool later = (sem.flags & DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT) != 0;
        if ((error = AddWait(device, sem.handle, sem.point, later, submission)) != 0) break;
      }
      return error;
    case AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL:
      for (const auto& sem : Entries<drm_amdgpu_cs_chunk_syncobj>(chunk)) {
        if ((error = AddSignal(device, sem.handle, sem.point, submission)) != 0) break;
      }
      return error;
    default:
      std::fprintf(stderr, "gpu emulator: a submission with chunk %u: it is not emulated\n",
                   chunk.chunk_id);
      return EINVAL;
  }
}

}  // namespace

int SubmitChunks(Device& device, drm_amdgpu_cs& call) {
  Submission submission;
  submission.context = call.in.ctx_id;
  const auto* const* chunks = reinterpret_cast<const drm_amdgpu_cs_chunk* const*>(call.in.chunks);
  for (uint32_t i = 0; i < call.in.num_chunks; ++i) {
    if (const int error = AddChunk(device, *chunks[i], submission)) return error;
  }
  if (submission.buffers.empty()) return EINVAL;
  uint64_t sequence = 0;
  if (const int error = device.Submit(std::move(submission), &sequence)) return error;
  call.out.handle = sequence;
  return 0;
}

}  // namespace tandem::rdna
