// Device memory and designs for tests of emulated arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "services/common/base/check.h"
#include "services/npu_worker/emulator/address_space.h"
#include "services/npu_worker/emulator/array/configuration.h"
#include "services/npu_worker/emulator/array/recorded_design.h"

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

// The design that a test runs: of this folder, or what the operator's array design describes, where
// TANDEM_ARRAY_DESIGNS names a folder of those.
inline absl::StatusOr<EmulatedArray::DesignFactory> DesignUnderTest(const std::string& name,
                                                                    const ArrayShape& shape) {
  const char* const folder = std::getenv("TANDEM_ARRAY_DESIGNS");
  if (folder == nullptr) return FindDesign(name, shape);
  const char* const device = shape.generation == 3 ? "npu1" : "npu4";
  return ReadRecordedDesign(std::string(folder) + "/" + device + "/" + name + ".json", shape);
}

}  // namespace tandem::npu::emulator
