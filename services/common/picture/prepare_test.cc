#include "services/common/picture/prepare.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "services/common/testing/paths.h"

namespace tandem {
namespace {

VisionConfig Config(uint32_t side) {
  VisionConfig config;
  config.image_size = side;
  return config;
}

TEST(PrepareTest, PutsChannelsInPlanesFromMinusOneToOne) {
  const std::vector<uint8_t> pixels = {0, 255, 51, 102, 153, 204, 1, 2, 3, 4, 5, 6};
  const std::vector<float> values = PreparePicture({2, 2, pixels}, Config(2));
  ASSERT_EQ(values.size(), 12u);
  EXPECT_EQ(values[0], -1.0f);
  EXPECT_EQ(values[4], 1.0f);
  EXPECT_EQ(values[1], (102 - 127.5f) / 127.5f);
  EXPECT_EQ(values[8 + 3], (6 - 127.5f) / 127.5f);
}

TEST(PrepareTest, UsesMeanDeviationAndRescaling) {
  VisionConfig config = Config(1);
  config.pixels.mean = {0.25f, 0.5f, 0.0f};
  config.pixels.std = {1.0f, 0.5f, 0.25f};
  config.pixels.rescale = 1.0 / 128;
  const std::vector<uint8_t> pixels = {64, 64, 64};
  EXPECT_EQ(PreparePicture({1, 1, pixels}, config), (std::vector<float>{0.25f, 0.0f, 2.0f}));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// tests/data/pictures/README.md says how Gemma3ImageProcessor's values were kept: as bytes, which
// loses nothing.
TEST(PrepareTest, HasTheBitsOfTheReferenceProcessor) {
  const struct {
    const char* name;
    uint32_t width, height;
  } pictures[] = {{"00", 245, 274}, {"01", 156, 151}, {"02", 130, 96}};
  constexpr uint32_t kSide = 224;
  for (const auto& picture : pictures) {
    const std::string base = TestDataPath("pictures/") + picture.name;
    const std::string rgb = ReadFile(base + ".rgb");
    const std::string levels = ReadFile(base + ".resized.rgb");
    ASSERT_EQ(rgb.size(), size_t{picture.width} * picture.height * 3) << base;
    ASSERT_EQ(levels.size(), size_t{kSide} * kSide * 3) << base;
    const std::span<const uint8_t> pixels(reinterpret_cast<const uint8_t*>(rgb.data()), rgb.size());
    const std::vector<float> values =
        PreparePicture({picture.width, picture.height, pixels}, Config(kSide));
    size_t num_different = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const size_t plane = size_t{kSide} * kSide;
      const auto level = static_cast<uint8_t>(levels[i % plane * 3 + i / plane]);
      num_different += values[i] != (static_cast<float>(level) - 127.5f) / 127.5f;
    }
    EXPECT_EQ(num_different, 0u) << base;
  }
}

}  // namespace
}  // namespace tandem
