#include "services/common/base/heap_trimmer.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace tandem {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TANDEM_OTHER_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TANDEM_OTHER_ALLOCATOR 1
#endif
#endif

using Pieces = std::vector<std::unique_ptr<char[]>>;

// `num_bytes` in pieces of 1 KiB, all written.
Pieces Allocate(size_t num_bytes) {
  Pieces pieces;
  for (size_t at = 0; at < num_bytes; at += 1024) pieces.push_back(std::make_unique<char[]>(1024));
  return pieces;
}

TEST(HeapTrimmerTest, GivesBackWhatPiecesInUseHoldInTheHeap) {
#ifdef TANDEM_OTHER_ALLOCATOR
  GTEST_SKIP() << "the sanitizer's allocator keeps freed memory on purpose";
#endif
  constexpr int64_t kBytes = 64 << 20;
  HeapTrimmer trimmer(absl::Milliseconds(10));
  // Another thread's arena, and a piece at its end, so that freeing alone shrinks nothing.
  std::unique_ptr<char[]> last;
  int64_t most = 0, least = 0;
  std::thread other([&] {
    const int64_t before = ResidentBytes().value();
    Pieces pieces = Allocate(kBytes);
    last = std::make_unique<char[]>(1024);
    most = ResidentBytes().value() - before;
    pieces.clear();
    const absl::Time end = absl::Now() + absl::Seconds(30);
    do {
      absl::SleepFor(absl::Milliseconds(5));
      least = ResidentBytes().value() - before;
    } while (least > kBytes / 8 && absl::Now() < end);
  });
  other.join();
  EXPECT_GE(most, kBytes);
  EXPECT_LE(least, kBytes / 8);
}

TEST(HeapTrimmerTest, EndsWithoutWaitingForItsInterval) {
  const absl::Time begin = absl::Now();
  { HeapTrimmer trimmer(absl::Hours(1)); }
  EXPECT_LT(absl::Now() - begin, absl::Minutes(1));
}

}  // namespace
}  // namespace tandem
