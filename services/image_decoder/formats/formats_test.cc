// Every format's reader over files of its own library: right ones and wrong ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "services/common/testing/status_matchers.h"
#include "services/image_decoder/formats/decode.h"
#include "services/image_decoder/testing/picture_files.h"

namespace tandem::image_decoder {
namespace {

using namespace ::tandem::testing;  // the files' writers
using ::testing::HasSubstr;

constexpr uint64_t kMaxPixels = 1 << 20;

struct Decoded {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> pixels;
};

absl::StatusOr<Decoded> Decode(std::string_view file, uint64_t max_pixels = kMaxPixels) {
  std::vector<uint8_t> room(3 * max_pixels);
  PixelSink sink(room, max_pixels);
  const absl::Status status =
      DecodePicture({reinterpret_cast<const uint8_t*>(file.data()), file.size()}, sink);
  if (!status.ok()) return status;
  room.resize(size_t{3} * sink.width() * sink.height());
  return Decoded{sink.width(), sink.height(), std::move(room)};
}

void ExpectRefused(std::string_view file, const char* message) {
  EXPECT_THAT(Decode(file), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
}

void ExpectPixels(std::string_view file, const TestPicture& picture, int tolerance = 0) {
  ASSERT_OK_AND_ASSIGN(const Decoded decoded, Decode(file));
  ASSERT_EQ(decoded.width, picture.width);
  ASSERT_EQ(decoded.height, picture.height);
  const std::vector<uint8_t> expected = picture.OverWhite();
  int worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(decoded.pixels[i] - expected[i]));
  }
  EXPECT_LE(worst, tolerance);
}

TestPicture Transparent(uint32_t width, uint32_t height) {
  TestPicture picture = TestPicture::Pattern(width, height);
  for (uint32_t i = 0; i < width * height; ++i) {
    picture.rgba[4 * i + 3] = static_cast<uint8_t>(i * 7);
  }
  return picture;
}
// Levels that JPEG keeps nearly: no pixel far from its neighbours.
TestPicture Smooth(uint32_t width, uint32_t height) {
  TestPicture picture = TestPicture::Pattern(width, height);
  for (uint32_t i = 0; i < width * height; ++i) picture.rgba[4 * i + 2] = 90;
  return picture;
}
TestPicture Grey(TestPicture picture) {
  for (size_t i = 0; i < picture.rgba.size(); i += 4) {
    picture.rgba[i + 1] = picture.rgba[i + 2] = picture.rgba[i];
  }
  return picture;
}

TEST(PngTest, ReadsEveryKind) {
  for (const auto& [width, height] : {std::pair{1u, 1u}, {7u, 5u}, {64u, 33u}}) {
    const TestPicture picture = TestPicture::Pattern(width, height);
    const TestPicture transparent = Transparent(width, height);
    ExpectPixels(PngFile(picture), picture);
    ExpectPixels(PngFile(picture, {.interlaced = true}), picture);
    ExpectPixels(PngFile(picture, {.sixteen_bits = true}), picture);
    ExpectPixels(PngFile(Grey(picture), {.grey = true}), Grey(picture));
    ExpectPixels(PngFile(transparent, {.alpha = true}), transparent);
    ExpectPixels(PngFile(transparent, {.alpha = true, .interlaced = true}), transparent);
  }
}

TEST(PngTest, RefusesAnimationsDamageAndCuts) {
  const std::string file = PngFile(TestPicture::Pattern(40, 30));
  std::string animated = file;
  animated.insert(33, PngChunk("acTL", std::string(8, '\1')));
  ExpectRefused(animated, "the PNG is animated");
  for (const size_t length :
       {8ul, 20ul, 33ul, file.size() / 2, file.size() - 13, file.size() - 1}) {
    ExpectRefused(file.substr(0, length), "the PNG");
  }
  std::string damaged = file;
  damaged[file.size() / 2] = static_cast<char>(damaged[file.size() / 2] ^ 0x55);
  ExpectRefused(damaged, "the PNG is damaged");
  std::string palette = file;
  palette[25] = 3;  // colour type 3 without a palette; the checksum is wrong as well
  ExpectRefused(palette, "the PNG is damaged");
}

// 65,535 x 65,535 in some 60 bytes, and texts that unpack to 100 MB.
TEST(PngTest, RefusesBombs) {
  const std::string header =
      std::string("\x89PNG\r\n\x1a\n", 8) +
      PngChunk("IHDR", std::string("\0\0\xff\xff\0\0\xff\xff\x08\2\0\0\0", 13));
  ExpectRefused(header + PngChunk("IDAT", "x") + PngChunk("IEND", ""), "65535 x 65535 pixels");
  std::string with_text = PngFile(TestPicture::Pattern(4, 4));
  with_text.insert(33, PngChunk("iTXt", std::string(100 << 10, '\0')));
  EXPECT_OK(Decode(with_text));
}

TEST(PngTest, TurnsByEveryOrientation) {
  const TestPicture picture = TestPicture::Pattern(5, 3);
  for (uint32_t orientation = 1; orientation <= 8; ++orientation) {
    ASSERT_OK_AND_ASSIGN(const Decoded decoded,
                         Decode(PngFile(picture, {.exif = ExifBlock(orientation)})));
    EXPECT_EQ(decoded.width, orientation < 5 ? 5u : 3u);
  }
}

TEST(JpegTest, ReadsEveryKind) {
  const TestPicture picture = Smooth(61, 47);
  ExpectPixels(JpegFile(picture), picture, 12);
  ExpectPixels(JpegFile(picture, {.progressive = true}), picture, 12);
  ExpectPixels(JpegFile(Grey(picture), {.grey = true}), Grey(picture), 6);
  ExpectPixels(JpegFile(picture, {.cmyk = true}), picture, 12);
  ExpectPixels(JpegFile(Smooth(1, 1)), Smooth(1, 1), 12);
}

TEST(JpegTest, TurnsAPhonesPhotographUpright) {
  const TestPicture picture = Smooth(32, 16);
  const std::vector<uint8_t> level = Decode(JpegFile(picture))->pixels;
  ASSERT_OK_AND_ASSIGN(const Decoded turned,
                       Decode(JpegFile(picture, {.exif = ExifBlock(6, true)})));
  ASSERT_EQ(turned.width, 16u);
  ASSERT_EQ(turned.height, 32u);
  for (uint32_t y = 0; y < 16; ++y) {
    for (uint32_t x = 0; x < 32; ++x) {
      EXPECT_EQ(turned.pixels[3 * (x * 16 + 15 - y)], level[3 * (y * 32 + x)]);
    }
  }
}

TEST(JpegTest, RefusesDamageAndCuts) {
  for (const bool progressive : {false, true}) {
    const std::string file = JpegFile(Smooth(64, 64), {.progressive = progressive});
    for (const size_t length : {3ul, 25ul, file.size() / 2, file.size() - 40, file.size() - 1}) {
      ExpectRefused(file.substr(0, length), "the JPEG");
    }
  }
  std::string huge = JpegFile(Smooth(8, 8));
  const size_t frame = huge.find("\xff\xc0");
  huge.replace(frame + 5, 4, "\xfd\xe8\xfd\xe8");
  ExpectRefused(huge, "65000 x 65000 pixels");
}

// A file that repeats its last scan costs time again and again.
TEST(JpegTest, RefusesMoreScansThanEncodersWrite) {
  const std::string file = JpegFile(Smooth(64, 64), {.progressive = true});
  const size_t last = file.rfind("\xff\xda");
  const std::string scan = file.substr(last, file.size() - 2 - last);
  std::string repeated = file.substr(0, file.size() - 2);
  for (int i = 0; i < 200; ++i) repeated += scan;
  ExpectRefused(repeated + "\xff\xd9", "the JPEG");
}

TEST(WebpTest, ReadsEveryKind) {
  const TestPicture transparent = Transparent(31, 17);
  ExpectPixels(WebpFile(TestPicture::Pattern(31, 17)), TestPicture::Pattern(31, 17));
  // Under full transparency the encoder may change colours; over white they do not show.
  ExpectPixels(WebpFile(transparent), transparent);
  ExpectPixels(WebpFile(Smooth(64, 48), {.lossless = false}), Smooth(64, 48), 20);
  ASSERT_OK_AND_ASSIGN(const Decoded turned,
                       Decode(WebpFile(Smooth(12, 7), {.exif = ExifBlock(8)})));
  EXPECT_EQ(turned.width, 7u);
}

TEST(WebpTest, RefusesAnimationsDamageAndCuts) {
  ExpectRefused(WebpFile(Smooth(9, 9), {.animated = true}), "the WebP is animated");
  const std::string file = WebpFile(Smooth(64, 64), {.lossless = false});
  for (const size_t length : {12ul, 20ul, 30ul, file.size() / 2, file.size() - 2}) {
    ExpectRefused(file.substr(0, length), "the WebP");
  }
}

TEST(GifTest, ReadsTheFirstFrame) {
  TestPicture picture = TestPicture::Pattern(19, 11);
  ExpectPixels(GifFile(picture), picture);
  ExpectPixels(GifFile(picture, {.interlaced = true}), picture);
  ExpectPixels(GifFile(picture, {.num_frames = 3}), picture);
  ExpectPixels(GifFile(TestPicture::Pattern(1, 1)), TestPicture::Pattern(1, 1));
}

TEST(GifTest, TransparentPixelsAndTheCanvasAreWhite) {
  const TestPicture picture = TestPicture::Pattern(6, 4);
  ASSERT_OK_AND_ASSIGN(const Decoded decoded,
                       Decode(GifFile(picture, {.left = 3, .transparent = 0})));
  ASSERT_EQ(decoded.width, 9u);
  const auto pixel = [&](uint32_t x, uint32_t y) {
    const uint8_t* at = &decoded.pixels[3 * (y * 9 + x)];
    return std::vector<int>{at[0], at[1], at[2]};
  };
  EXPECT_EQ(pixel(0, 0), (std::vector<int>{255, 255, 255}));  // left of the frame
  EXPECT_EQ(pixel(3, 0), (std::vector<int>{255, 255, 255}));  // colour 0
  EXPECT_EQ(pixel(4, 0), (std::vector<int>{51, 0, 220}));
}

TEST(GifTest, RefusesDamageAndCuts) {
  const std::string file = GifFile(TestPicture::Pattern(40, 40));
  for (const size_t length : {6ul, 13ul, 400ul, 790ul, file.size() / 2, file.size() - 12}) {
    ExpectRefused(file.substr(0, length), "the GIF");
  }
  std::string outside = GifFile(TestPicture::Pattern(8, 8));
  outside[6] = 4;  // the canvas is narrower than the frame
  ExpectRefused(outside, "outside its canvas of 4 x 8");
  ExpectRefused(outside.substr(0, 13 + 768) + ";", "the GIF has no picture");
  std::string huge = file;
  huge.replace(6, 4, "\xff\xff\xff\xff");
  ExpectRefused(huge, "65535 x 65535 pixels");
}

TEST(BmpTest, ReadsEveryKind) {
  const TestPicture picture = TestPicture::Pattern(13, 9);
  const TestPicture transparent = Transparent(13, 9);
  ExpectPixels(BmpFile(picture), picture);
  ExpectPixels(BmpFile(picture, {.top_down = true}), picture);
  ExpectPixels(BmpFile(picture, {.bits = 8}), picture);
  ExpectPixels(BmpFile(picture, {.bits = 32}), picture);
  ExpectPixels(BmpFile(transparent, {.bits = 32, .bit_fields = true}), transparent);
  ExpectPixels(BmpFile(picture, {.bits = 16}), picture, 8);
}

TEST(BmpTest, RefusesDamageAndCuts) {
  const std::string file = BmpFile(TestPicture::Pattern(13, 9));
  for (const size_t length : {2ul, 14ul, 18ul, 53ul, 100ul, file.size() - 1}) {
    ExpectRefused(file.substr(0, length), "the BMP");
  }
  const auto with = [&file](size_t at, std::string_view bytes) {
    std::string changed = file;
    changed.replace(at, bytes.size(), bytes);
    return changed;
  };
  using namespace std::string_view_literals;
  ExpectRefused(with(18, "\xff\xff\xff\x7f"), "2147483647 x 9 pixels");
  ExpectRefused(with(18, "\xff\xff\xff\xff"), "a width of -1");
  ExpectRefused(with(22, "\x00\x00\x00\x80"sv), "13 x 2147483648 pixels");
  ExpectRefused(with(28, "\x05"), "5 bits a pixel");
  ExpectRefused(with(30, "\x01"), "compression 1");
  ExpectRefused(with(10, "\xff\xff\xff\xff"), "cut off");
  ExpectRefused(with(14, "\xff\xff\xff\xff"), "header");
  std::string palette = BmpFile(TestPicture::Pattern(13, 9), {.bits = 8});
  palette.replace(46, 4, "\x01\x01\x00\x00"sv);
  ExpectRefused(palette, "257 colours for 8 bits");
  std::string mask = BmpFile(TestPicture::Pattern(13, 9), {.bits = 32, .bit_fields = true});
  mask[54] = 0x5;
  ExpectRefused(mask, "channel mask of 0x5");
}

TEST(DecodeTest, RefusesOtherFiles) {
  ExpectRefused("", "the picture is empty");
  ExpectRefused("<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "no PNG, JPEG, WebP, GIF or BMP");
  ExpectRefused("RIFF1234WAVE", "no PNG");
}

// Formats are found by content; a limit of pixels holds for each.
TEST(DecodeTest, LimitsPixelsOfEveryFormat) {
  const TestPicture picture = Smooth(20, 20);
  for (const std::string& file : {PngFile(picture), JpegFile(picture), WebpFile(picture),
                                  GifFile(picture), BmpFile(picture)}) {
    EXPECT_OK(Decode(file, 400));
    EXPECT_THAT(Decode(file, 399), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr("20 x 20 pixels; at most 399")));
  }
}

}  // namespace
}  // namespace tandem::image_decoder
