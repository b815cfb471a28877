#include "services/common/base/random_bits.h"

#include "absl/random/random.h"

namespace tandem {

uint64_t RandomBits() {
  // std::random_device would ask the processor each time: tens of microseconds in a virtual machine.
  thread_local absl::BitGen bits;
  return absl::Uniform<uint64_t>(bits);
}

}  // namespace tandem
