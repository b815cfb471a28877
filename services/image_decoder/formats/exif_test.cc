#include "services/image_decoder/formats/exif.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "services/image_decoder/testing/picture_files.h"

namespace tandem::image_decoder {
namespace {

using testing::ExifBlock;

uint32_t OrientationOf(std::string_view block) {
  return ExifOrientation({reinterpret_cast<const uint8_t*>(block.data()), block.size()});
}

TEST(ExifTest, ReadsBothByteOrdersWithAndWithoutPrefix) {
  for (uint32_t orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big_endian : {false, true}) {
      const std::string block = ExifBlock(orientation, big_endian);
      EXPECT_EQ(OrientationOf(block), orientation);
      EXPECT_EQ(OrientationOf(std::string("Exif\0\0", 6) + block), orientation);
    }
  }
}

TEST(ExifTest, IgnoresOrientationsThatDoNotExist) {
  for (const uint32_t orientation : {0u, 9u, 65535u}) {
    EXPECT_EQ(OrientationOf(ExifBlock(orientation)), 1u);
  }
}

TEST(ExifTest, BrokenBlocksAreUpright) {
  const std::string block = ExifBlock(6);
  for (size_t length = 0; length < 20; ++length) {
    EXPECT_EQ(OrientationOf(block.substr(0, length)), 1u) << length;
  }
  std::string far = block;
  far.replace(4, 4, "\xff\xff\xff\xff");  // the directory's offset
  EXPECT_EQ(OrientationOf(far), 1u);
  std::string long_type = block;
  long_type[12] = 4;
  EXPECT_EQ(OrientationOf(long_type), 1u);
  std::string magic = block;
  magic[2] = 43;
  EXPECT_EQ(OrientationOf(magic), 1u);
  std::string mixed = block;
  mixed[1] = 'M';
  EXPECT_EQ(OrientationOf(mixed), 1u);
  std::string many = block;
  many.replace(8, 2, "\xff\xff");  // entries
  EXPECT_EQ(OrientationOf(many), 6u);
}

}  // namespace
}  // namespace tandem::image_decoder
