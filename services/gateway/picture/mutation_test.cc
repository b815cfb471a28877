// Thousands of damaged files through the process: each is decoded or refused, none hangs, and a
// good picture is decoded after them.
//
// TANDEM_MUTATIONS: files a format; default 100.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "services/common/picture/prepare.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/status_matchers.h"
#include "services/gateway/picture/picture_decoder.h"
#include "services/image_decoder/testing/picture_files.h"

namespace tandem::gateway {
namespace {

using namespace ::tandem::testing;

struct Format {
  const char* name;
  std::vector<std::string> seeds;
};

std::vector<Format> Formats() {
  TestPicture picture = TestPicture::Pattern(48, 37);
  TestPicture transparent = picture;
  for (size_t i = 3; i < transparent.rgba.size(); i += 4) {
    transparent.rgba[i] = static_cast<uint8_t>(i);
  }
  const std::string exif = ExifBlock(6);
  return {
      {"png",
       {PngFile(picture), PngFile(transparent, {.alpha = true, .interlaced = true}),
        PngFile(picture, {.sixteen_bits = true, .exif = exif}), PngFile(picture, {.grey = true})}},
      {"jpeg",
       {JpegFile(picture, {.exif = exif}), JpegFile(picture, {.progressive = true}),
        JpegFile(picture, {.grey = true}), JpegFile(picture, {.cmyk = true})}},
      {"webp",
       {WebpFile(picture, {.exif = exif}), WebpFile(picture, {.lossless = false}),
        WebpFile(transparent, {.lossless = false})}},
      {"gif",
       {GifFile(picture), GifFile(picture, {.interlaced = true}),
        GifFile(picture, {.num_frames = 2, .left = 3, .transparent = 1})}},
      {"bmp",
       {BmpFile(picture), BmpFile(picture, {.bits = 8}),
        BmpFile(transparent, {.bits = 32, .bit_fields = true})}}};
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  // One change, or up to eight, often in the header.
  std::string Mutate(std::string file) {
    const uint32_t num_changes = 1 + (Below(2) == 0 ? 0 : Below(8));
    for (uint32_t i = 0; i < num_changes && !file.empty(); ++i) {
      const size_t range = Below(2) == 0 ? std::min<size_t>(file.size(), 64) : file.size();
      const size_t at = Below(static_cast<uint32_t>(range));
      Change(file, at);
    }
    return file;
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void Change(std::string& file, size_t at) {
    switch (Below(7)) {
      case 0:
        file[at] = static_cast<char>(file[at] ^ 1 << Below(8));
        break;
      case 1:
        file[at] = static_cast<char>(Below(256));
        break;
      case 2:  // numbers at their limits
        file.replace(at, std::min<size_t>(4, file.size() - at),
                     std::min<size_t>(4, file.size() - at), Below(2) == 0 ? '\xff' : '\0');
        break;
      case 3:
        file.resize(at);
        break;
      case 4:
        file.insert(at, file.substr(at, Below(64)));
        break;
      case 5:
        file.erase(at, Below(16));
        break;
      default:
        file.insert(at, 1 + Below(8), static_cast<char>(Below(256)));
    }
  }

  std::mt19937 random_;
};

TEST(MutationTest, EveryDamagedFileIsDecodedOrRefused) {
  const char* wanted = std::getenv("TANDEM_MUTATIONS");
  const int num_files = wanted != nullptr ? std::atoi(wanted) : 100;
  ASSERT_GT(num_files, 0);
  PictureDecoderOptions options;
  options.program = BuildPath("bin/tandem-image-decoder");
  options.limits.max_pixels = 1 << 20;
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(options));
  for (const Format& format : Formats()) {
    Mutator mutator(20261125);
    int num_decoded = 0, num_refused = 0;
    for (int i = 0; i < num_files; ++i) {
      const std::string& seed = format.seeds[static_cast<size_t>(i) % format.seeds.size()];
      std::string file = mutator.Mutate(seed);
      // Past the checksums, which would find nearly all damage.
      if (i % 2 == 0) FixPngChecksums(file);
      const absl::Status status = decoder->Decode("stranger", file).status();
      num_decoded += status.ok();
      num_refused += !status.ok();
      if (status.ok()) continue;
      ASSERT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument))
          << format.name << " file " << i << " of seed 20261125";
      // A crash of a library would be contained, but is a find to look at.
      ASSERT_EQ(status.message().find("ended with signal"), absl::string_view::npos)
          << format.name << " file " << i << " of seed 20261125: " << status;
    }
    std::printf("%s: %d decoded, %d refused\n", format.name, num_decoded, num_refused);
    EXPECT_GT(num_refused, num_files / 10) << format.name;
    EXPECT_OK(decoder->Decode("", format.seeds[0]).status()) << format.name;
  }
}

// 100 MB of zeros in a PNG's text and in its pixels, and a file that is all zeros.
TEST(MutationTest, BombsAreRefusedOrCheap) {
  PictureDecoderOptions options;
  options.program = BuildPath("bin/tandem-image-decoder");
  options.max_file_bytes = uint64_t{128} << 20;
  options.limits.timeout = absl::Seconds(60);  // under sanitizers, beside other tests
  ASSERT_OK_AND_ASSIGN(const auto decoder, PictureDecoder::Create(options));
  TestPicture zeros{10000, 3300, std::vector<uint8_t>(size_t{4} * 10000 * 3300)};
  const std::string packed = PngFile(zeros, {.grey = true});
  EXPECT_LT(packed.size(), 1u << 20);
  EXPECT_OK(decoder->Decode("", packed).status());
  EXPECT_THAT(decoder->Decode("", std::string(100 << 20, '\0')),
              HasCode(absl::StatusCode::kInvalidArgument));
  // Small files of one pixel's width, whose rows would be widened to gigabytes.
  for (const auto& [width, height] : {std::pair(1u, 1'000'000u), std::pair(1'000'000u, 1u)}) {
    TestPicture thin{width, height, std::vector<uint8_t>(size_t{4} * width * height, 255)};
    const absl::Status refused = decoder->Decode("", PngFile(thin, {.grey = true})).status();
    EXPECT_THAT(refused, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_NE(refused.message().find("sides of at most 65535"), absl::string_view::npos) << refused;
  }
  TestPicture thinnest{1, 65535, std::vector<uint8_t>(size_t{4} * 65535, 255)};
  ASSERT_OK_AND_ASSIGN(const auto thin, decoder->Decode("", PngFile(thinnest, {.grey = true})));
  VisionConfig config;
  config.image_size = 896;
  const auto values = PreparePicture({thin.width(), thin.height(), thin.pixels()}, config);
  EXPECT_EQ(std::count(values.begin(), values.end(), 1.0f), std::ssize(values));
  std::string text = PngFile(TestPicture::Pattern(4, 4));
  text.insert(33, PngChunk("iTXt", std::string(100 << 20, '\0')));
  EXPECT_OK(decoder->Decode("", text).status());
}

}  // namespace
}  // namespace tandem::gateway
