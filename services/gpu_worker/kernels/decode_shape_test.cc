// How decode.comp's work is cut, against a walk over the positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "services/gpu_worker/kernels/attention_launches.h"

namespace tandem::gpu {
namespace {

TEST(DecodeShapeTest, CountsThePiecesThatARowSees) {
  const DecodeShape shape = {.piece = 8, .max_pieces = 16};
  for (const uint32_t window : {0u, 1u, 8u, 24u, 25u, 1000u}) {
    for (uint32_t last = 0; last < 1200; ++last) {
      const uint32_t first = window != 0 && last >= window ? last + 1 - window : 0;
      uint32_t length = 8;
      while ((last - first) / length > 15) length *= 2;
      std::set<uint32_t> pieces;
      for (uint32_t p = first; p <= last; ++p) pieces.insert(p / length);
      ASSERT_EQ(shape.Pieces(last, window), pieces.size()) << last << " window " << window;
    }
  }
}

TEST(DecodeShapeTest, SlotsAreAsManyAsSomeRowHasPieces) {
  for (const uint32_t window : {1u, 2u, 8u, 9u, 24u, 25u, 128u, 129u, 1000u, 0u}) {
    const DecodeShape shape = {.piece = 8, .max_pieces = 16, .num_groups = 1000};
    uint32_t most = 0;
    for (uint32_t last = 0; last < 1200; ++last) most = std::max(most, shape.Pieces(last, window));
    EXPECT_GE(shape.Slots(1, window), most) << window;
    EXPECT_LE(shape.Slots(1, window), most + 1) << window;
    EXPECT_EQ(shape.Slots(500, window), std::min(most, 2u)) << "the device is full with these";
    EXPECT_EQ(shape.Slots(2000, window), 1u);
  }
}

}  // namespace
}  // namespace tandem::gpu
