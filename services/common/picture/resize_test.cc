#include "services/common/picture/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace tandem {
namespace {

std::vector<uint8_t> RandomPixels(uint32_t width, uint32_t height, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> pixels(size_t{width} * height * 3);
  for (uint8_t& value : pixels) value = static_cast<uint8_t>(random());
  return pixels;
}

// The equation of resize.h in float64, with no rounding on the way.
std::vector<double> Exact(const PictureView& in, uint32_t width, uint32_t height) {
  const auto weight = [](uint32_t from, uint32_t to, uint32_t i, uint32_t j) {
    const double scale = static_cast<double>(from) / to;
    const double reach = std::max(1.0, scale);
    return std::max(0.0, 1.0 - std::abs(j + 0.5 - (i + 0.5) * scale) / reach);
  };
  std::vector<double> out(size_t{width} * height * 3);
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      double sum[3] = {};
      double total = 0;
      for (uint32_t j = 0; j < in.height; ++j) {
        const double down = weight(in.height, height, y, j);
        for (uint32_t i = 0; down > 0 && i < in.width; ++i) {
          const double both = down * weight(in.width, width, x, i);
          total += both;
          for (int c = 0; c < 3; ++c) {
            sum[c] += both * in.pixels[3 * (size_t{j} * in.width + i) + c];
          }
        }
      }
      for (int c = 0; c < 3; ++c) out[3 * (size_t{y} * width + x) + c] = sum[c] / total;
    }
  }
  return out;
}

TEST(ResizeTest, StaysWithinItsRoundings) {
  const uint32_t sides[][4] = {{1, 1, 5, 3},   {7, 5, 1, 1},    {16, 16, 16, 16},  {17, 31, 8, 8},
                               {8, 8, 17, 31}, {64, 3, 14, 14}, {101, 97, 28, 28}, {9, 14, 9, 5},
                               {14, 9, 5, 9},  {1, 60, 6, 6},   {60, 1, 6, 6}};
  for (const auto& [in_width, in_height, out_width, out_height] : sides) {
    const std::vector<uint8_t> pixels = RandomPixels(in_width, in_height, in_width);
    const PictureView view{in_width, in_height, pixels};
    const std::vector<uint8_t> actual = ResizeBilinear(view, out_width, out_height);
    const std::vector<double> expected = Exact(view, out_width, out_height);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      // Two roundings to bytes, and weights of at least 14 places: for the largest reach here, 22
      // taps, 22 * 255 * 2^-15 = 0.17 a pass.
      EXPECT_NEAR(actual[i], expected[i], 1.4) << in_width << "x" << in_height << " at " << i;
    }
  }
}

TEST(ResizeTest, KeepsPicturesOfTheRightSize) {
  const std::vector<uint8_t> pixels = RandomPixels(14, 9, 1);
  EXPECT_EQ(ResizeBilinear({14, 9, pixels}, 14, 9), pixels);
}

TEST(ResizeTest, KeepsEvenColours) {
  for (const uint8_t level : {0, 1, 127, 254, 255}) {
    const std::vector<uint8_t> pixels(301 * 7 * 3, level);
    for (const uint8_t value : ResizeBilinear({301, 7, pixels}, 33, 33)) EXPECT_EQ(value, level);
  }
}

TEST(ResizeTest, AveragesWholeNeighbourhoods) {
  // A checkerboard of single pixels shrunk to a quarter is grey, not one of its two colours.
  std::vector<uint8_t> pixels(64 * 64 * 3);
  for (size_t i = 0; i < 64 * 64; ++i) {
    std::fill_n(&pixels[3 * i], 3, (i + i / 64) % 2 == 0 ? 0 : 255);
  }
  const std::vector<uint8_t> small = ResizeBilinear({64, 64, pixels}, 16, 16);
  for (size_t y = 1; y < 15; ++y) {
    for (size_t x = 1; x < 15; ++x) EXPECT_NEAR(small[3 * (16 * y + x)], 127.5, 2.0);
  }
}

}  // namespace
}  // namespace tandem
