// How decode.comp's work is cut, against a walk over the positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "services/gpu_worker/kernels/attention_launches.h"

namespace tandem::gpu {
namespace {

// That the kernel cuts what a row at `last` sees into, by a walk over the positions.
size_t Pieces(const DecodeShape& shape, uint32_t last, uint32_t window) {
  const uint32_t first = window != 0 && last >= window ? last + 1 - window : 0;
  uint32_t length = shape.piece;
  while ((last - first) / length >= shape.max_pieces) length *= 2;
  std::set<uint32_t> pieces;
  for (uint32_t p = first; p <= last; ++p) pieces.insert(p / length);
  return pieces.size();
}

TEST(DecodeShapeTest, SlotsAreAsManyAsSomeRowHasPieces) {
  const DecodeShape shape = {.piece = 8, .max_pieces = 16, .num_groups = 1000};
  for (const uint32_t window : {1u, 2u, 8u, 9u, 24u, 25u, 128u, 129u, 1000u, 0u}) {
    size_t most = 0;
    for (uint32_t last = 0; last < 1200; ++last) {
      most = std::max(most, Pieces(shape, last, window));
    }
    EXPECT_GE(shape.Slots(1, window), most) << window;
    EXPECT_LE(shape.Slots(1, window), most + 1) << window;
    EXPECT_EQ(shape.Slots(500, window), std::min<size_t>(most, 2)) << "the device is full then";
    EXPECT_EQ(shape.Slots(2000, window), 1u);
  }
}

TEST(DecodeShapeTest, LanesLoadAsManyChunksAheadWhateverTheHead) {
  Tuning tuning{.subgroup_size = 32};
  tuning.decode.min_group = 16;
  tuning.decode.chunks_ahead = 4;
  struct Case {
    uint32_t heads, kv_heads, head_dim, group, at_once;
  };
  for (const Case& c : {Case{32, 16, 128, 16, 4}, Case{16, 8, 256, 16, 2}, Case{4, 1, 256, 32, 4},
                        Case{8, 8, 64, 8, 4}}) {
    const DecodeShape shape = MakeDecodeShape(tuning, c.heads, c.kv_heads, c.head_dim);
    EXPECT_EQ(shape.group, c.group) << c.head_dim;
    EXPECT_EQ(shape.at_once, c.at_once) << c.head_dim;
    EXPECT_EQ(shape.piece % (tuning.decode.threads / shape.group * shape.at_once), 0u);
  }
}

}  // namespace
}  // namespace tandem::gpu
