// Memory that others own, as the NPU sees it: the exchange region and the weight regions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/weights/weight_set.h"
#include "services/common/worker/worker.h"
#include "services/npu_worker/xrt/npu_buffer.h"
#include "services/npu_worker/xrt/npu_kernel.h"

namespace tandem::npu {

// The ports of each lane of an exchange region.  Imported by user pointer, or copied on each step
// where XRT refuses that.
class ExchangeBuffers {
 public:
  static absl::StatusOr<ExchangeBuffers> Create(NpuKernel& npu,
                                                std::shared_ptr<const Exchange> exchange);

  // Starts where the lane starts, so that the layout's offsets hold in it.
  const NpuBuffer& lane(uint32_t lane) const { return lanes_[lane]; }
  // Makes rows of a port visible to the device, or what the device wrote visible to the others.
  absl::Status ToDevice(uint32_t lane, Port port, uint32_t num_rows) const;
  absl::Status FromDevice(uint32_t lane, Port port, uint32_t num_rows) const;

  ImportPath path() const {
    return region_.valid() ? ImportPath::kUserPointer : ImportPath::kUpload;
  }
  const std::string& note() const { return note_; }

 private:
  std::shared_ptr<const Exchange> exchange_;  // shared with the worker skeleton
  NpuBuffer region_;                          // invalid when lanes are copies
  std::vector<NpuBuffer> lanes_;
  std::string note_;
};

// The weight shards that a plan reads.  Regions are imported whole, as dmabuf or by user pointer;
// shards of a region that XRT refuses both ways are copied.
class WeightBuffers {
 public:
  struct Place {
    const NpuBuffer* buffer = nullptr;
    uint64_t offset = 0;  // of the shard in it
  };

  explicit WeightBuffers(std::shared_ptr<const WeightSet> weights) : weights_(std::move(weights)) {}

  absl::StatusOr<Place> Import(NpuKernel& npu, const PackedTensor& tensor, const Shard& shard);

  // The worst path in use; kNone before the first Import.
  ImportPath path() const { return path_; }
  uint64_t bytes() const { return bytes_; }  // of the shards imported
  const std::string& note() const { return note_; }

 private:
  absl::StatusOr<NpuBuffer> ImportRegion(NpuKernel& npu, const WeightRegion& region);

  std::shared_ptr<const WeightSet> weights_;                // shared with the worker skeleton
  std::map<uint32_t, std::unique_ptr<NpuBuffer>> regions_;  // nullptr: cannot be imported
  std::vector<std::unique_ptr<NpuBuffer>> copies_;
  ImportPath path_ = ImportPath::kNone;
  uint64_t bytes_ = 0;
  std::string note_;
};

}  // namespace tandem::npu
