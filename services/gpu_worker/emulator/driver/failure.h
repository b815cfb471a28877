// Why a submission did not come to its end.
#pragma once

#include <cstdint>
#include <string>

namespace tandem::rdna {

struct Failure {
  enum class Kind {
    kFault,    // an address that is not mapped: on hardware a page fault, and the device is lost
    kHang,     // on hardware a time-out, and the device is lost
    kUnknown,  // not emulated: a test that gets here proves nothing
  };
  Kind kind = Kind::kFault;
  std::string what;
  uint64_t address = 0;  // of the memory that was wanted; 0: not about an address
};

std::string Hex(uint64_t value);  // "0x1f"

}  // namespace tandem::rdna
