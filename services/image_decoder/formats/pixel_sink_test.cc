#include "services/image_decoder/formats/pixel_sink.h"

#include <gtest/gtest.h>

#include <vector>

#include "services/common/testing/status_matchers.h"

namespace tandem::image_decoder {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

// The stored picture "0 1 2 / 3 4 5" with its orientation undone: numbers in reading order.
std::vector<int> Upright(uint32_t orientation, uint32_t& width) {
  std::vector<uint8_t> out(18);
  PixelSink sink(out, 6);
  EXPECT_OK(sink.Begin(3, 2, orientation));
  for (uint8_t y = 0; y < 2; ++y) {
    std::vector<uint8_t> row;
    for (uint8_t x = 0; x < 3; ++x) row.insert(row.end(), 3, 3 * y + x);
    sink.PutRow(y, row.data());
  }
  width = sink.width();
  std::vector<int> numbers;
  for (size_t i = 0; i < out.size(); i += 3) numbers.push_back(out[i]);
  return numbers;
}

// By EXIF's definition: where the stored first row and first column belong.
TEST(PixelSinkTest, UndoesEveryOrientation) {
  const struct {
    uint32_t orientation, width;
    std::vector<int> pixels;
  } cases[] = {{0, 3, {0, 1, 2, 3, 4, 5}}, {1, 3, {0, 1, 2, 3, 4, 5}}, {2, 3, {2, 1, 0, 5, 4, 3}},
               {3, 3, {5, 4, 3, 2, 1, 0}}, {4, 3, {3, 4, 5, 0, 1, 2}}, {5, 2, {0, 3, 1, 4, 2, 5}},
               {6, 2, {3, 0, 4, 1, 5, 2}}, {7, 2, {5, 2, 4, 1, 3, 0}}, {8, 2, {2, 5, 1, 4, 0, 3}},
               {9, 3, {0, 1, 2, 3, 4, 5}}};
  for (const auto& test : cases) {
    uint32_t width = 0;
    EXPECT_EQ(Upright(test.orientation, width), test.pixels) << test.orientation;
    EXPECT_EQ(width, test.width) << test.orientation;
  }
}

TEST(PixelSinkTest, LaysPixelsOverWhite) {
  std::vector<uint8_t> out(12);
  PixelSink sink(out, 4);
  ASSERT_OK(sink.Begin(4, 1, 1));
  const uint8_t row[] = {10, 20, 30, 255, 10, 20, 30, 0, 0, 0, 0, 128, 255, 255, 255, 77};
  sink.PutRgbaRow(0, row);
  EXPECT_EQ(out, (std::vector<uint8_t>{10, 20, 30, 255, 255, 255, 127, 127, 127, 255, 255, 255}));
}

TEST(PixelSinkTest, RefusesSizesBeforeAnythingIsAllocated) {
  std::vector<uint8_t> out(3 * 100);
  const struct {
    uint64_t width, height;
    const char* message;
  } cases[] = {{0, 5, "0 x 5 pixels"},
               {5, 0, "5 x 0 pixels"},
               {101, 1, "at most 100 pixels"},
               {10, 11, "10 x 11 pixels"},
               {1ull << 33, 1ull << 33, "at most 100"}};
  for (const auto& test : cases) {
    PixelSink sink(out, 1000);
    EXPECT_THAT(sink.Begin(test.width, test.height, 1),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.message)));
  }
  PixelSink sink(out, 1000);
  EXPECT_OK(sink.Begin(10, 10, 6));
}

}  // namespace
}  // namespace tandem::image_decoder
