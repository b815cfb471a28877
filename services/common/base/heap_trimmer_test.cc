#include "services/common/base/heap_trimmer.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/base/sanitized.h"

namespace tandem {
namespace {

using Pieces = std::vector<std::unique_ptr<char[]>>;

// `num_bytes` in pieces of 1 KiB, all written.
Pieces Allocate(size_t num_bytes) {
  Pieces pieces;
  pieces.reserve(num_bytes / 1024);  // below them in the heap
  for (size_t at = 0; at < num_bytes; at += 1024) pieces.push_back(std::make_unique<char[]>(1024));
  return pieces;
}

TEST(HeapTrimmerTest, GivesBackWhatPiecesInUseHoldInTheHeap) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's allocator keeps freed memory on purpose";
  constexpr int64_t kBytes = 64 << 20;
  HeapTrimmer trimmer(absl::Milliseconds(10));
  // Another thread's arena, and a piece at its end, so that freeing alone shrinks nothing.  The second half is freed after a trim
  // with that half in use.
  std::unique_ptr<char[]> last;
  int64_t most = 0, half = 0, least = 0;
  std::thread other([&] {
    const int64_t before = ResidentBytes().value();
    Pieces first = Allocate(kBytes / 2), second = Allocate(kBytes / 2);
    last = std::make_unique<char[]>(1024);
    most = ResidentBytes().value() - before;
    const auto wait_until_at_most = [&](int64_t bytes) {
      const absl::Time end = absl::Now() + absl::Seconds(30);
      int64_t now = 0;
      do {
        absl::SleepFor(absl::Milliseconds(5));
        now = ResidentBytes().value() - before;
      } while (now > bytes && absl::Now() < end);
      return now;
    };
    first.clear();
    half = wait_until_at_most(kBytes * 5 / 8);
    second.clear();
    least = wait_until_at_most(kBytes / 8);
  });
  other.join();
  EXPECT_GE(most, kBytes);
  EXPECT_LE(half, kBytes * 5 / 8);
  EXPECT_LE(least, kBytes / 8);
}

TEST(HeapTrimmerTest, EndsWithoutWaitingForItsInterval) {
  const absl::Time begin = absl::Now();
  { HeapTrimmer trimmer(absl::Hours(1)); }
  EXPECT_LT(absl::Now() - begin, absl::Minutes(1));
}

}  // namespace
}  // namespace tandem
