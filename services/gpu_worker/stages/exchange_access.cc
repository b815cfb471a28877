#include "services/gpu_worker/stages/exchange_access.h"

#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::gpu {

absl::StatusOr<std::unique_ptr<ExchangeAccess>> ExchangeAccess::Create(
    const vulkan::Device& device, std::shared_ptr<const Exchange> exchange) {
  std::unique_ptr<ExchangeAccess> access(new ExchangeAccess);
  access->exchange_ = std::move(exchange);
  const Mapping& mapping = access->exchange_->mapping;
  // amdgpu refuses it, as it refuses all shared memory: a Radeon has the mirror.
  absl::StatusOr<vulkan::Buffer> imported =
      vulkan::Buffer::ImportHostPointer(device, mapping.data(), mapping.size());
  if (imported.ok()) {
    access->buffer_ = *std::move(imported);
    access->path_ = ImportPath::kHostPointer;
    return access;
  }
  access->note_ = absl::StrFormat("exchange: %s", std::string(imported.status().message()));
  TANDEM_ASSIGN_OR_RETURN(
      access->buffer_,
      vulkan::Buffer::Allocate(device, mapping.size(), vulkan::MemoryKind::kExchange, "exchange"));
  access->path_ = ImportPath::kUpload;
  return access;
}

std::span<std::byte> ExchangeAccess::HostView(uint32_t lane, const ExchangeArea& area) const {
  if (path_ != ImportPath::kUpload) return exchange_->Area(lane, area);
  return buffer_.mapped().subspan(lane * layout().lane_bytes + area.offset, area.bytes);
}

void ExchangeAccess::CopyRows(uint32_t lane, const ExchangeArea& area, uint64_t rows,
                              bool in) const {
  std::byte* const mirror = HostView(lane, area).data();
  std::byte* const shared = exchange_->Area(lane, area).data();
  const uint64_t bytes = rows * area.row_bytes;
  if (in) {
    std::memcpy(mirror, shared, bytes);
  } else {
    std::memcpy(shared, mirror, bytes);
  }
}

void ExchangeAccess::CopyIn(uint32_t lane, PortMask ports, uint32_t num_rows) const {
  if (path_ != ImportPath::kUpload) return;
  for (int bit = 0; bit < kNumPorts; ++bit) {
    if ((ports >> bit & 1) != 0) CopyRows(lane, layout().ports[bit], num_rows, true);
  }
}

void ExchangeAccess::CopyInSoftTokens(uint32_t lane, std::span<const PictureEntry> pictures) const {
  if (path_ != ImportPath::kUpload) return;
  const ExchangeArea& area = layout().soft_tokens;
  for (const PictureEntry& picture : pictures) {
    const uint64_t at = picture.first_row * area.row_bytes;
    std::memcpy(HostView(lane, area).data() + at, exchange_->Area(lane, area).data() + at,
                picture.num_rows * area.row_bytes);
  }
}

void ExchangeAccess::CopyInPixels(uint32_t lane, uint32_t num_pictures) const {
  if (path_ == ImportPath::kUpload) CopyRows(lane, layout().pixels, num_pictures, true);
}

void ExchangeAccess::CopyOutSoftTokens(uint32_t lane, uint32_t num_rows) const {
  if (path_ == ImportPath::kUpload) CopyRows(lane, layout().soft_tokens, num_rows, false);
}

void ExchangeAccess::CopyInMasks(uint32_t lane, const StepHeader& header) const {
  if (path_ == ImportPath::kUpload) CopyRows(lane, layout().masks, header.num_masks, true);
}

void ExchangeAccess::CopyOut(uint32_t lane, PortMask ports, uint32_t num_rows) const {
  if (path_ != ImportPath::kUpload) return;
  for (int bit = 0; bit < kNumPorts; ++bit) {
    if ((ports >> bit & 1) != 0) CopyRows(lane, layout().ports[bit], num_rows, false);
  }
}

void ExchangeAccess::CopyOutResults(uint32_t lane, const StepHeader& header) const {
  if (path_ != ImportPath::kUpload) return;
  CopyRows(lane, layout().candidates, header.num_outputs, false);
  CopyRows(lane, layout().guesses, header.num_outputs, false);
  if (header.want_logits != 0) CopyRows(lane, layout().logits, header.num_outputs, false);
  CopyRows(lane, layout().pooled, header.num_pooled, false);
}

void ExchangeAccess::CopyInKv(uint64_t bytes) const {
  if (path_ != ImportPath::kUpload) return;
  std::memcpy(HostView(0, layout().kv).data(), exchange_->Area(0, layout().kv).data(), bytes);
}

void ExchangeAccess::CopyOutKv(uint64_t bytes) const {
  if (path_ != ImportPath::kUpload) return;
  std::memcpy(exchange_->Area(0, layout().kv).data(), HostView(0, layout().kv).data(), bytes);
}

}  // namespace tandem::gpu
