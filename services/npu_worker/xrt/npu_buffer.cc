#include "services/npu_worker/xrt/npu_buffer.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/base/status_macros.h"
#include "services/npu_worker/xrt/xrt_objects.h"
#include "services/npu_worker/xrt/xrt_status.h"

namespace tandem::npu {

NpuBuffer::NpuBuffer() = default;
NpuBuffer::NpuBuffer(NpuBuffer&& other) noexcept
    : impl_(std::move(other.impl_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}
NpuBuffer& NpuBuffer::operator=(NpuBuffer&& other) noexcept {
  impl_ = std::move(other.impl_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}
NpuBuffer::~NpuBuffer() = default;

absl::StatusOr<uint64_t> NpuBuffer::DeviceAddress() const {
  TANDEM_CHECK(valid());
  uint64_t address = 0;
  TANDEM_RETURN_IF_ERROR(
      Guarded("asking for a buffer's address", [&] { address = impl_->bo.address(); }));
  return address;
}

absl::Status NpuBuffer::SyncToDevice(size_t offset, size_t bytes) const {
  TANDEM_CHECK(valid() && offset <= size_ && bytes <= size_ - offset);
  return Guarded("handing a buffer to the NPU",
                 [&] { impl_->bo.sync(XCL_BO_SYNC_BO_TO_DEVICE, bytes, offset); });
}

absl::Status NpuBuffer::SyncFromDevice(size_t offset, size_t bytes) const {
  TANDEM_CHECK(valid() && offset <= size_ && bytes <= size_ - offset);
  return Guarded("taking a buffer back from the NPU",
                 [&] { impl_->bo.sync(XCL_BO_SYNC_BO_FROM_DEVICE, bytes, offset); });
}

absl::StatusOr<NpuBuffer> NpuBuffer::Slice(size_t offset, size_t bytes) const {
  TANDEM_CHECK(valid());
  if (offset % kSliceAlignment != 0 || bytes == 0 || offset > size_ || bytes > size_ - offset) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "slice of %d bytes at offset %d of an NPU buffer of %d", bytes, offset, size_));
  }
  NpuBuffer slice;
  slice.impl_ = std::make_unique<Impl>();
  TANDEM_RETURN_IF_ERROR(Guarded("slicing an NPU buffer",
                                 [&] { slice.impl_->bo = xrt::bo(impl_->bo, bytes, offset); }));
  slice.data_ = data_ == nullptr ? nullptr : data_ + offset;
  slice.size_ = bytes;
  return slice;
}

}  // namespace tandem::npu
