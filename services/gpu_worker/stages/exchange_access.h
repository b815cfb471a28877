// The device's access to the exchange region: imported, or through a mirror.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/worker/worker.h"
#include "services/gpu_worker/vulkan/buffer.h"

namespace tandem::gpu {

class ExchangeAccess {
 public:
  // Imports the region by host pointer.  If the device cannot, kernels use a mirror buffer of the
  // same layout, and CopyIn and CopyOut copy a segment's inputs and outputs.  `device`: borrowed;
  // must outlive this.
  static absl::StatusOr<std::unique_ptr<ExchangeAccess>> Create(
      const vulkan::Device& device, std::shared_ptr<const Exchange> exchange);

  const ExchangeLayout& layout() const { return exchange_->layout; }
  ImportPath path() const { return path_; }
  const std::string& note() const { return note_; }

  // The region, or its mirror; areas lie in it as in the region.
  const vulkan::Buffer& buffer() const { return buffer_; }
  // Device address of an area of a lane.
  uint64_t Address(uint32_t lane, const ExchangeArea& area) const {
    return buffer_.address() + lane * layout().lane_bytes + area.offset;
  }
  // Where the host reads what kernels wrote to an area.
  std::span<std::byte> HostView(uint32_t lane, const ExchangeArea& area) const;

  void CopyIn(uint32_t lane, PortMask ports, uint32_t num_rows) const;
  // Copies the rows of the step's pictures.
  void CopyInSoftTokens(uint32_t lane, std::span<const PictureEntry> pictures) const;
  // Of a vision plan: copies pixels, and rows of soft tokens.
  void CopyInPixels(uint32_t lane, uint32_t num_pictures) const;
  void CopyOutSoftTokens(uint32_t lane, uint32_t num_rows) const;
  // Copies the step's masks.
  void CopyInMasks(uint32_t lane, const StepHeader& header) const;
  void CopyOut(uint32_t lane, PortMask ports, uint32_t num_rows) const;
  // Copies candidates, speculative tokens, pooled sums, and logits if the step asks for them.
  void CopyOutResults(uint32_t lane, const StepHeader& header) const;
  // Copy the first bytes of the area for KV.
  void CopyInKv(uint64_t bytes) const;
  void CopyOutKv(uint64_t bytes) const;

 private:
  ExchangeAccess() = default;
  void CopyRows(uint32_t lane, const ExchangeArea& area, uint64_t rows, bool in) const;

  std::shared_ptr<const Exchange> exchange_;  // shared with the skeleton
  vulkan::Buffer buffer_;
  ImportPath path_ = ImportPath::kNone;
  std::string note_;
};

}  // namespace tandem::gpu
