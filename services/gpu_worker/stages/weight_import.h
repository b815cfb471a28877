// Makes the loader's weight regions readable by the device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/weights/weight_set.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/kernels/launches.h"
#include "services/gpu_worker/vulkan/buffer.h"
#include "services/gpu_worker/vulkan/upload.h"

namespace tandem::gpu {

// A part of a region that becomes one buffer.
struct RegionSpan {
  uint32_t region = 0;
  uint64_t begin = 0;  // a multiple of kShardAlignment
  uint64_t end = 0;
  friend bool operator==(const RegionSpan&, const RegionSpan&) = default;
};

// Cuts the bytes of all shards into spans of at most `max_bytes`, none across a gap larger than
// `max_gap`.  RESOURCE_EXHAUSTED: one shard is larger.  Pure.
absl::StatusOr<std::vector<RegionSpan>> CutRegions(const std::vector<const PackedTensor*>& tensors,
                                                   uint64_t max_bytes, uint64_t max_gap);

class WeightImport {
 public:
  // Imports the bytes of `tensors`: as dmabuf, else by host pointer, else by upload.  A discrete
  // card always uploads, because it reads its own memory many times faster than the host's.  amdgpu
  // takes host pointers to anonymous memory alone, and weights are shared memory: a Radeon has
  // dmabufs or copies.
  // `device`: borrowed; must outlive this, as must `weights` (kept).
  static absl::StatusOr<std::unique_ptr<WeightImport>> Create(
      const vulkan::Device& device, vulkan::Uploader& uploader,
      std::shared_ptr<const WeightSet> weights, const std::vector<const PackedTensor*>& tensors,
      const std::function<void(double)>& progress);

  // The shards of a tensor, grouped by format, in row order; `rows` is of the whole tensor.
  // REQUIRES an imported tensor.
  std::span<const DeviceTensor> Parts(const PackedTensor& tensor) const {
    return tensors_.at(&tensor);
  }
  // The same of a tensor in one format.
  const DeviceTensor& Find(const PackedTensor& tensor) const;

  ImportPath path() const { return path_; }
  uint64_t bytes() const { return bytes_; }
  // Why each better path failed; empty for the best path.
  const std::string& note() const { return note_; }

 private:
  WeightImport() = default;
  absl::Status ImportSpan(const vulkan::Device& device, vulkan::Uploader& uploader,
                          const RegionSpan& span);
  void MapTensor(const PackedTensor& tensor);
  // Adds the reason to the note, once for each path.
  void Note(ImportPath path, const absl::Status& reason);
  // Where the device shares the host's memory.
  void WarnOfCopies(const vulkan::Device& device) const;

  std::shared_ptr<const WeightSet> weights_;                // shared with the skeleton
  std::vector<std::pair<RegionSpan, uint64_t>> addresses_;  // of each span's first byte
  std::vector<vulkan::Buffer> buffers_;
  std::map<uint32_t, uint64_t> dmabufs_;  // region -> address of its first byte
  std::map<const PackedTensor*, std::vector<DeviceTensor>> tensors_;
  ImportPath path_ = ImportPath::kNone;
  uint64_t bytes_ = 0;
  uint64_t copied_bytes_ = 0;  // of bytes_
  std::string note_;
};

}  // namespace tandem::gpu
