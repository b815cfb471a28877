#include "services/npu_worker/emulator/address_space.h"

#include "absl/strings/str_format.h"

namespace tandem::npu::emulator {

absl::Status AddressSpace::Add(uint64_t address, std::byte* host, uint64_t bytes) {
  if (host == nullptr || bytes == 0 || address + bytes < address) {
    return absl::InvalidArgumentError(
        absl::StrFormat("buffer of %d bytes at device address %#x", bytes, address));
  }
  const std::unique_lock lock(mutex_);
  const auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first - address < bytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "buffer of %d bytes at %#x overlaps the one at %#x", bytes, address, next->first));
  }
  if (next != ranges_.begin()) {
    const auto& [start, range] = *std::prev(next);
    if (address - start < range.bytes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("buffer at %#x lies inside the one at %#x", address, start));
    }
  }
  ranges_.emplace(address, Range{host, bytes});
  return absl::OkStatus();
}

void AddressSpace::Remove(uint64_t address) {
  const std::unique_lock lock(mutex_);
  ranges_.erase(address);
}

absl::StatusOr<std::span<std::byte>> AddressSpace::View::Buffer(uint64_t address) const {
  auto it = space_.ranges_.upper_bound(address);
  if (it == space_.ranges_.begin()) {
    return absl::OutOfRangeError(absl::StrFormat("device address %#x is not mapped", address));
  }
  --it;
  const uint64_t offset = address - it->first;
  if (offset >= it->second.bytes) {
    return absl::OutOfRangeError(absl::StrFormat("device address %#x is not mapped", address));
  }
  return std::span<std::byte>(it->second.host + offset, it->second.bytes - offset);
}

absl::StatusOr<std::span<std::byte>> Within(std::span<std::byte> buffer, uint64_t offset,
                                            uint64_t bytes, const char* what) {
  if (offset > buffer.size() || bytes > buffer.size() - offset) {
    return absl::OutOfRangeError(absl::StrFormat("%s: %d bytes at offset %d of a buffer of %d",
                                                 what, bytes, offset, buffer.size()));
  }
  return buffer.subspan(offset, bytes);
}

}  // namespace tandem::npu::emulator
