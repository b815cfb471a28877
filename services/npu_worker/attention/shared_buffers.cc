#include "services/npu_worker/attention/shared_buffers.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/attention/kernel_abi.h"

namespace tandem::npu {

absl::StatusOr<ExchangeBuffers> ExchangeBuffers::Create(NpuKernel& npu,
                                                        std::shared_ptr<const Exchange> exchange) {
  const ExchangeLayout& layout = exchange->layout;
  const Mapping& mapping = exchange->mapping;
  if (layout.total_bytes() > mapping.size()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "exchange region of %d bytes, its layout needs %d", mapping.size(), layout.total_bytes()));
  }
  // The ports lie between the step area and the candidates: kernels see nothing behind them.
  const uint64_t lane_bytes = layout.candidates.offset;
  ExchangeBuffers buffers;
  auto region = npu.WrapMapping(kExchangeBuffer, mapping.data(), mapping.size());
  if (region.ok()) {
    buffers.region_ = *std::move(region);
  } else {
    buffers.note_ = absl::StrFormat("exchange by user pointer failed: %s",
                                    std::string(region.status().message()));
  }
  for (uint32_t lane = 0; lane < layout.num_lanes; ++lane) {
    absl::StatusOr<NpuBuffer> buffer =
        buffers.region_.valid() ? buffers.region_.Slice(lane * layout.lane_bytes, lane_bytes)
                                : npu.Allocate(kExchangeBuffer, lane_bytes);
    if (!buffer.ok()) return buffer.status();
    buffers.lanes_.push_back(*std::move(buffer));
  }
  buffers.exchange_ = std::move(exchange);
  return buffers;
}

absl::Status ExchangeBuffers::ToDevice(uint32_t lane, Port port, uint32_t num_rows) const {
  const ExchangeArea& area = exchange_->layout.port(port);
  const uint64_t bytes = num_rows * area.row_bytes;
  if (!region_.valid()) {
    std::memcpy(lanes_[lane].data() + area.offset, exchange_->Area(lane, area).data(), bytes);
  }
  return lanes_[lane].SyncToDevice(area.offset, bytes);
}

absl::Status ExchangeBuffers::FromDevice(uint32_t lane, Port port, uint32_t num_rows) const {
  const ExchangeArea& area = exchange_->layout.port(port);
  const uint64_t bytes = num_rows * area.row_bytes;
  TANDEM_RETURN_IF_ERROR(lanes_[lane].SyncFromDevice(area.offset, bytes));
  if (!region_.valid()) {
    std::memcpy(exchange_->Area(lane, area).data(), lanes_[lane].data() + area.offset, bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<NpuBuffer> WeightBuffers::ImportRegion(NpuKernel& npu, const WeightRegion& region) {
  const size_t bytes = region.mapping.size();
  if (region.dmabuf_fd.valid()) {
    auto buffer = npu.ImportDmabuf(kWeightBuffer, region.dmabuf_fd.get(), bytes);
    if (buffer.ok()) {
      path_ = std::max(path_, ImportPath::kDmabuf);
      return buffer;
    }
    note_ = absl::StrFormat("weights by dmabuf failed: %s", std::string(buffer.status().message()));
  }
  auto buffer = npu.WrapMapping(kWeightBuffer, region.mapping.data(), bytes);
  if (buffer.ok()) {
    TANDEM_RETURN_IF_ERROR(buffer->SyncToDevice(0, bytes));
    path_ = std::max(path_, ImportPath::kUserPointer);
  }
  return buffer;
}

absl::StatusOr<WeightBuffers::Place> WeightBuffers::Import(NpuKernel& npu,
                                                           const PackedTensor& tensor,
                                                           const Shard& shard) {
  const auto [it, is_new] = regions_.try_emplace(shard.region, nullptr);
  if (is_new) {
    auto region = ImportRegion(npu, weights_->regions()[shard.region]);
    if (region.ok()) {
      it->second = std::make_unique<NpuBuffer>(*std::move(region));
    } else {
      note_ = absl::StrFormat("weights by user pointer failed: %s",
                              std::string(region.status().message()));
    }
  }
  const uint64_t bytes = ShardBytes(tensor, shard);
  bytes_ += bytes;
  if (it->second != nullptr) return Place{it->second.get(), shard.offset};
  TANDEM_ASSIGN_OR_RETURN(NpuBuffer copy, npu.Allocate(kWeightBuffer, bytes));
  std::memcpy(copy.data(), weights_->ShardData(shard), bytes);
  TANDEM_RETURN_IF_ERROR(copy.SyncToDevice(0, bytes));
  path_ = ImportPath::kUpload;
  copies_.push_back(std::make_unique<NpuBuffer>(std::move(copy)));
  return Place{copies_.back().get(), 0};
}

}  // namespace tandem::npu
