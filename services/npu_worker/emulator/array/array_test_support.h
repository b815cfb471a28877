// Device memory for tests of emulated arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/common/base/check.h"
#include "services/npu_worker/emulator/address_space.h"

namespace tandem::npu::emulator {

// Buffers of words at device addresses.
class DeviceMemory {
 public:
  // A buffer of `words`; returns its address.  There is nothing between it and others.
  uint64_t Add(std::span<uint32_t> words) {
    const uint64_t address = next_;
    TANDEM_CHECK(
        space_.Add(address, reinterpret_cast<std::byte*>(words.data()), words.size_bytes()).ok());
    next_ += (words.size_bytes() + 0xFFFFF) / 0x100000 * 0x100000;
    return address;
  }
  const AddressSpace& space() const { return space_; }

 private:
  AddressSpace space_;
  uint64_t next_ = 0x7000000000;
};

}  // namespace tandem::npu::emulator
