// Writes picture files for tests, right ones and wrong ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::testing {

// RGBA, [height, width, 4].
struct TestPicture {
  uint32_t width = 0;
  uint32_t height = 0;
  std::vector<uint8_t> rgba;

  // A pattern whose pixels all differ from their neighbours; opaque.
  static TestPicture Pattern(uint32_t width, uint32_t height);
  uint8_t* at(uint32_t x, uint32_t y) { return &rgba[4 * (size_t{y} * width + x)]; }
  // What a decoder must make of it: over white, [height, width, 3].
  std::vector<uint8_t> OverWhite() const;
};

struct PngOptions {
  bool alpha = false;
  bool grey = false;
  bool interlaced = false;
  bool sixteen_bits = false;
  std::string exif;  // an eXIf chunk's data; empty: none
};
std::string PngFile(const TestPicture& picture, const PngOptions& options = {});
// A PNG chunk with its length and checksum.
std::string PngChunk(std::string_view type, std::string_view data);
// Writes the right checksum after each whole chunk of a PNG file; leaves other files alone.
void FixPngChecksums(std::string& file);

struct JpegOptions {
  int quality = 95;
  bool progressive = false;
  bool grey = false;
  bool cmyk = false;  // with Adobe's marker, inverted
  std::string exif;   // an APP1 marker's data, without "Exif\0\0"; empty: none
};
std::string JpegFile(const TestPicture& picture, const JpegOptions& options = {});

struct WebpOptions {
  bool lossless = true;
  std::string exif;
  bool animated = false;  // the picture twice
};
std::string WebpFile(const TestPicture& picture, const WebpOptions& options = {});

struct GifOptions {
  bool interlaced = false;
  int num_frames = 1;    // the second and later are upside down
  uint32_t left = 0;     // of a canvas that is larger than the frame by so many columns
  int transparent = -1;  // a colour number
};
// The palette holds the first 256 colours of the picture; others become colour 0.
std::string GifFile(const TestPicture& picture, const GifOptions& options = {});

struct BmpOptions {
  uint32_t bits = 24;  // 8 with the palette as a GIF's; 16, 24, 32
  bool top_down = false;
  bool bit_fields = false;  // 32 bits: masks with opacity
};
std::string BmpFile(const TestPicture& picture, const BmpOptions& options = {});

// An EXIF block that holds the orientation alone, little- or big-endian.
std::string ExifBlock(uint32_t orientation, bool big_endian = false);

}  // namespace tandem::testing
