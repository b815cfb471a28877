#include "services/common/plan/layer_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string CheckMessage(const std::vector<LayerRange>& ranges, uint32_t num_layers) {
  return std::string(CheckLayerRanges(ranges, num_layers).message());
}

TEST(LayerRangesTest, ParsesWhatTheFlagTakes) {
  const auto range = ParseLayerRange("gpu=1=6-11");
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->worker, "gpu=1") << "the last equals sign counts";
  EXPECT_EQ(range->first, 6u);
  EXPECT_EQ(range->last, 11u);
  for (const char* text : {"", "gpu1", "gpu1=", "gpu1=3", "=0-3", "gpu1=-3", "gpu1=3-", "gpu1=4-3",
                           "gpu1=0-3x", "gpu1= 0-3", "gpu-1=0", "gpu1=0-99999999999"}) {
    EXPECT_EQ(ParseLayerRange(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(LayerRangesTest, EveryLayerHasOneRange) {
  EXPECT_TRUE(CheckLayerRanges({{"a", 0, 3}, {"b", 4, 4}, {"a", 5, 9}}, 10).ok());
  EXPECT_THAT(CheckMessage({{"a", 0, 3}, {"b", 5, 9}}, 10),
              HasSubstr("b=5-9: must begin with layer 4"));
  EXPECT_THAT(CheckMessage({{"a", 0, 3}, {"b", 3, 9}}, 10),
              HasSubstr("b=3-9: must begin with layer 4"));
  EXPECT_THAT(CheckMessage({{"a", 1, 9}}, 10), HasSubstr("must begin with layer 0"));
  EXPECT_THAT(CheckMessage({{"a", 0, 10}}, 10), HasSubstr("end by layer 9"));
  EXPECT_EQ(CheckMessage({{"a", 0, 3}}, 10), "layers 4-9 are on no worker");
}

TEST(LayerRangesTest, LayersAreSharedByMemory) {
  EXPECT_THAT(ShareLayers({96, 32}, 12), ElementsAre(9, 12));
  EXPECT_THAT(ShareLayers({1, 1, 1}, 12), ElementsAre(4, 8, 12));
  EXPECT_THAT(ShareLayers({1, 1}, 5), ElementsAre(3, 5)) << "rounded up";
  EXPECT_THAT(ShareLayers({64, 0}, 12), ElementsAre(6, 12)) << "one does not say: equally";
  EXPECT_THAT(ShareLayers({1000, 1, 1}, 4), ElementsAre(2, 3, 4)) << "one layer at least";
  EXPECT_THAT(ShareLayers({1, 1, 1000}, 4), ElementsAre(1, 2, 4));
  for (uint32_t owners = 1; owners <= 7; ++owners) {
    for (uint32_t layers = owners; layers <= 62; ++layers) {
      const auto ends = ShareLayers(std::vector<uint64_t>(owners, uint64_t{3} << 30), layers);
      ASSERT_EQ(ends.size(), owners);
      for (uint32_t k = 0; k < owners; ++k) {
        EXPECT_EQ(ends[k], ((k + 1) * layers + owners - 1) / owners) << owners << " " << layers;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
