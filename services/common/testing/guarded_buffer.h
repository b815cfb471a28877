// A buffer with known values on both sides, so that a kernel that writes past its output is seen.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace tandem::testing {

inline constexpr std::byte kGuardByte{0xA5};

// The first byte that is not the guard value, or OK.
inline ::testing::AssertionResult IsGuard(std::span<const std::byte> bytes) {
  const auto bad =
      std::find_if(bytes.begin(), bytes.end(), [](std::byte b) { return b != kGuardByte; });
  if (bad == bytes.end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "byte " << bad - bytes.begin() << " of " << bytes.size() << " guard bytes was written";
}

// `n` elements of a trivial type T between two guards; everything starts as guard values.
template <typename T>
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t n)
      : size_(n), bytes_(n * sizeof(T) + 2 * kGuardBytes, kGuardByte) {}

  T* data() { return reinterpret_cast<T*>(bytes_.data() + kGuardBytes); }
  std::span<T> span() { return {data(), size_}; }

  ::testing::AssertionResult Intact() const {
    const std::span<const std::byte> all(bytes_);
    auto before = IsGuard(all.first(kGuardBytes));
    if (!before) return before << " before the buffer";
    auto after = IsGuard(all.last(kGuardBytes));
    if (!after) return after << " after the buffer";
    return ::testing::AssertionSuccess();
  }

 private:
  static constexpr size_t kGuardBytes = 256;
  size_t size_;
  std::vector<std::byte> bytes_;
};

}  // namespace tandem::testing
