#include "services/common/picture/pan_and_scan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem {

// gtest finds it by name.
void PrintTo(const CropRect& crop, std::ostream* os) {
  *os << crop.width << "x" << crop.height << "+" << crop.left << "+" << crop.top;
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PanAndScanTest, PicturesThatAreNearlySquareHaveNoCrops) {
  EXPECT_THAT(PanAndScan(1, 1), IsEmpty());
  EXPECT_THAT(PanAndScan(896, 896), IsEmpty());
  EXPECT_THAT(PanAndScan(1199, 1000), IsEmpty());
  EXPECT_THAT(PanAndScan(1000, 1199), IsEmpty());
}

TEST(PanAndScanTest, CropsLieAlongTheLongerSide) {
  EXPECT_THAT(PanAndScan(1200, 1000),
              ElementsAre(CropRect{0, 0, 600, 1000}, CropRect{600, 0, 600, 1000}));
  EXPECT_THAT(PanAndScan(1000, 1200),
              ElementsAre(CropRect{0, 0, 1000, 600}, CropRect{0, 600, 1000, 600}));
  EXPECT_THAT(PanAndScan(2500, 1000),
              ElementsAre(CropRect{0, 0, 834, 1000}, CropRect{834, 0, 834, 1000},
                          CropRect{1668, 0, 832, 1000}))
      << "2.5 is rounded up, and the last crop has the rest";
  EXPECT_EQ(PanAndScan(300, 5000).size(), kMostCrops);
}

TEST(PanAndScanTest, CropsHaveSidesOf256PixelsAtLeast) {
  EXPECT_THAT(PanAndScan(510, 300), IsEmpty());
  EXPECT_THAT(PanAndScan(511, 300),
              ElementsAre(CropRect{0, 0, 256, 300}, CropRect{256, 0, 255, 300}));
  EXPECT_THAT(PanAndScan(900, 255), IsEmpty());
  EXPECT_THAT(PanAndScan(767, 256),
              ElementsAre(CropRect{0, 0, 384, 256}, CropRect{384, 0, 383, 256}))
      << "three would have less";
  EXPECT_THAT(PanAndScan(33554432, 1), IsEmpty());
}

// The numbers that Gemma3ImageProcessor of transformers 5.17 gave.
TEST(PanAndScanTest, ThereAreAsManyAsTheReferenceMakes) {
  const struct {
    uint32_t width, height;
    size_t crops;
  } pictures[] = {{1199, 1000, 0}, {1200, 1000, 2}, {1000, 1200, 2}, {2500, 1000, 3},
                  {300, 1300, 4},  {511, 300, 2},   {510, 300, 0},   {767, 256, 2},
                  {900, 255, 0},   {4000, 300, 4},  {640, 480, 2},   {480, 640, 2},
                  {1920, 1080, 2}};
  for (const auto& [width, height, crops] : pictures) {
    EXPECT_EQ(PanAndScan(width, height).size(), crops) << width << " x " << height;
  }
}

TEST(PanAndScanTest, ACropHasItsPixels) {
  // A pixel's red is its column, its green its row.
  constexpr uint32_t kWidth = 7, kHeight = 5;
  std::vector<uint8_t> pixels;
  for (uint8_t y = 0; y < kHeight; ++y) {
    for (uint8_t x = 0; x < kWidth; ++x) pixels.insert(pixels.end(), {x, y, 9});
  }
  const PictureView picture = {kWidth, kHeight, pixels};
  EXPECT_THAT(CropPixels(picture, {.left = 5, .top = 1, .width = 2, .height = 2}),
              ElementsAre(5, 1, 9, 6, 1, 9, 5, 2, 9, 6, 2, 9));
  EXPECT_EQ(CropPixels(picture, {.width = kWidth, .height = kHeight}), pixels);
}

}  // namespace
}  // namespace tandem
