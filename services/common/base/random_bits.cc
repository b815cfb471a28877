#include "services/common/base/random_bits.h"

#include "absl/random/random.h"

namespace tandem {

uint64_t RandomBits() {
  // std::random_device would ask the processor each time: 14 us for 64 bits on a virtual Xeon.
  thread_local absl::BitGen bits;
  return absl::Uniform<uint64_t>(bits);
}

}  // namespace tandem
