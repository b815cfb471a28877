// What happens by chance in a simulated cluster.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace tandem::simulate {

// For the threads of one world, which run one at a time.
class RandomSource {
 public:
  explicit RandomSource(uint64_t seed) : random_(seed) {}

  // In [low, high].
  uint64_t Between(uint64_t low, uint64_t high) { return low + random_() % (high - low + 1); }
  bool OneIn(uint64_t n) { return random_() % n == 0; }
  // True with this probability.
  bool Happens(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    return absl::Nanoseconds(Between(static_cast<uint64_t>(absl::ToInt64Nanoseconds(low)),
                                     static_cast<uint64_t>(absl::ToInt64Nanoseconds(high))));
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace tandem::simulate
