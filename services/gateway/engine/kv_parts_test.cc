#include "services/gateway/engine/kv_parts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tandem::gateway {
namespace {

TEST(ForPartsTest, EachItemIsInOnePart) {
  for (const size_t bytes_each : {size_t{1}, size_t{1} << 20}) {
    for (const size_t count : {0, 1, 3, 7, 50}) {
      std::vector<std::atomic<int>> seen(count);
      ForParts(count, bytes_each, 4, [&seen](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& times : seen) EXPECT_EQ(times, 1) << count << " of " << bytes_each;
    }
  }
}

}  // namespace
}  // namespace tandem::gateway
