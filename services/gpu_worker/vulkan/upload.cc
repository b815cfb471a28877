#include "services/gpu_worker/vulkan/upload.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "services/common/base/status_macros.h"

namespace tandem::vulkan {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
// One core copies slower than a bus of 16 lanes carries; a thread is worth starting for a megabyte.
constexpr size_t kMaxThreads = 8;
constexpr size_t kBytesPerThread = 1 << 20;

void CopyInParallel(std::byte* to, std::span<const std::byte> from) {
  const size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const size_t parts =
      std::clamp<size_t>(from.size() / kBytesPerThread, 1, std::min(kMaxThreads, cores));
  const size_t part_bytes = (from.size() + parts - 1) / parts;
  const auto copy = [&](size_t part) {
    const size_t begin = std::min(from.size(), part * part_bytes);
    std::memcpy(to + begin, from.data() + begin, std::min(part_bytes, from.size() - begin));
  };
  std::vector<std::thread> helpers;
  for (size_t part = 1; part < parts; ++part) helpers.emplace_back(copy, part);
  copy(0);
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Uploader>> Uploader::Create(const Device& device, Timeline& timeline,
                                                           uint64_t half_bytes) {
  std::unique_ptr<Uploader> uploader(new Uploader(device, timeline));
  uploader->half_bytes_ = half_bytes;
  TANDEM_ASSIGN_OR_RETURN(uploader->layout_, PipelineLayout::Create(device));
  TANDEM_ASSIGN_OR_RETURN(
      uploader->staging_,
      Buffer::Allocate(device, 2 * half_bytes, MemoryKind::kExchange, "staging buffer"));
  return uploader;
}

absl::Status Uploader::WaitFor(int half) {
  if (pending_[half] == 0) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(timeline_.Wait(pending_[half], kTimeout));
  pending_[half] = 0;
  return absl::OkStatus();
}

absl::Status Uploader::Upload(std::span<const std::byte> data, const Buffer& to, uint64_t offset) {
  while (!data.empty()) {
    const int half = next_;
    next_ ^= 1;
    TANDEM_RETURN_IF_ERROR(WaitFor(half));
    const uint64_t bytes = std::min<uint64_t>(data.size(), half_bytes_);
    CopyInParallel(staging_.mapped().data() + half * half_bytes_, data.first(bytes));
    TANDEM_ASSIGN_OR_RETURN(pools_[half], CommandPool::Create(device_));
    TANDEM_ASSIGN_OR_RETURN(Recorder recorder, Recorder::Begin(pools_[half], layout_));
    recorder.Copy(staging_, half * half_bytes_, to, offset, bytes);
    recorder.Barrier();
    TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
    TANDEM_ASSIGN_OR_RETURN(pending_[half], timeline_.Submit({&commands, 1}));
    data = data.subspan(bytes);
    offset += bytes;
  }
  return absl::OkStatus();
}

absl::Status Uploader::Clear(const Buffer& buffer) {
  const int half = next_;
  next_ ^= 1;
  TANDEM_RETURN_IF_ERROR(WaitFor(half));
  TANDEM_ASSIGN_OR_RETURN(pools_[half], CommandPool::Create(device_));
  TANDEM_ASSIGN_OR_RETURN(Recorder recorder, Recorder::Begin(pools_[half], layout_));
  recorder.Fill(buffer, 0);
  recorder.Barrier();
  TANDEM_ASSIGN_OR_RETURN(const VkCommandBuffer commands, recorder.End());
  TANDEM_ASSIGN_OR_RETURN(pending_[half], timeline_.Submit({&commands, 1}));
  return absl::OkStatus();
}

absl::Status Uploader::Finish() {
  TANDEM_RETURN_IF_ERROR(WaitFor(0));
  return WaitFor(1);
}

}  // namespace tandem::vulkan
