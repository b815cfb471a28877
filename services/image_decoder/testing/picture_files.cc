#include "services/image_decoder/testing/picture_files.h"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
// clang-format off
#include <jpeglib.h>
// clang-format on

namespace tandem::testing {
namespace {

std::string Little(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}
std::string Big(uint64_t value, size_t bytes) {
  std::string out = Little(value, bytes);
  return {out.rbegin(), out.rend()};
}

uint64_t Checksum(std::string_view bytes) {
  return crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
}

// The channels that a file stores, [height, width, channels], 8 bits each.
std::vector<uint8_t> Channels(const TestPicture& picture, size_t channels) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < picture.rgba.size(); i += 4) {
    for (size_t c = 0; c < channels; ++c) out.push_back(picture.rgba[i + c]);
  }
  return out;
}

}  // namespace

TestPicture TestPicture::Pattern(uint32_t width, uint32_t height) {
  TestPicture picture{width, height, std::vector<uint8_t>(size_t{width} * height * 4)};
  for (uint32_t y = 0; y < height; ++y) {
    for (uint32_t x = 0; x < width; ++x) {
      uint8_t* pixel = picture.at(x, y);
      pixel[0] = static_cast<uint8_t>(x * 255 / std::max(1u, width - 1));
      pixel[1] = static_cast<uint8_t>(y * 255 / std::max(1u, height - 1));
      pixel[2] = static_cast<uint8_t>((x + y) % 2 * 200 + 20);
      pixel[3] = 255;
    }
  }
  return picture;
}

std::vector<uint8_t> TestPicture::OverWhite() const {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < rgba.size(); i += 4) {
    for (size_t c = 0; c < 3; ++c) {
      const double share = rgba[i + 3] / 255.0;
      out.push_back(static_cast<uint8_t>(rgba[i + c] * share + 255 * (1 - share) + 0.5));
    }
  }
  return out;
}

std::string PngChunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  return Big(data.size(), 4) + body + Big(Checksum(body), 4);
}

void FixPngChecksums(std::string& file) {
  if (!file.starts_with("\x89PNG")) return;
  size_t at = 8;
  while (at < file.size() && file.size() - at >= 12) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(file[at + i]);
    if (length > file.size() - at - 12) return;
    const std::string_view body = std::string_view(file).substr(at + 4, 4 + size_t{length});
    file.replace(at + 8 + length, 4, Big(Checksum(body), 4));
    at += 12 + size_t{length};
  }
}

std::string PngFile(const TestPicture& picture, const PngOptions& options) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp p, png_bytep bytes, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(p))
            ->append(reinterpret_cast<const char*>(bytes), size);
      },
      nullptr);
  const int type = options.grey    ? PNG_COLOR_TYPE_GRAY
                   : options.alpha ? PNG_COLOR_TYPE_RGB_ALPHA
                                   : PNG_COLOR_TYPE_RGB;
  const size_t channels = options.grey ? 1 : options.alpha ? 4 : 3;
  const int depth = options.sixteen_bits ? 16 : 8;
  png_set_IHDR(png, info, picture.width, picture.height, depth, type,
               options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  if (!options.exif.empty()) file += PngChunk("eXIf", options.exif);
  std::vector<uint8_t> pixels = Channels(picture, channels);
  if (options.sixteen_bits) {
    std::vector<uint8_t> wide;
    for (const uint8_t value : pixels) wide.insert(wide.end(), {value, value});
    pixels = std::move(wide);
  }
  std::vector<png_bytep> rows;
  for (uint32_t y = 0; y < picture.height; ++y) {
    rows.push_back(&pixels[y * pixels.size() / picture.height]);
  }
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return file;
}

std::string JpegFile(const TestPicture& picture, const JpegOptions& options) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &bytes, &size);
  jpeg.image_width = picture.width;
  jpeg.image_height = picture.height;
  jpeg.input_components = options.grey ? 1 : options.cmyk ? 4 : 3;
  jpeg.in_color_space = options.grey ? JCS_GRAYSCALE : options.cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, options.quality, TRUE);
  if (options.progressive) jpeg_simple_progression(&jpeg);
  jpeg.write_Adobe_marker = options.cmyk ? TRUE : FALSE;
  jpeg_start_compress(&jpeg, TRUE);
  if (!options.exif.empty()) {
    const std::string marker = std::string("Exif\0\0", 6) + options.exif;
    jpeg_write_marker(&jpeg, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(marker.data()),
                      static_cast<unsigned>(marker.size()));
  }
  // Inverted CMYK without black is RGB with a fourth channel of 255.
  std::vector<uint8_t> pixels = Channels(picture, static_cast<size_t>(jpeg.input_components));
  while (jpeg.next_scanline < jpeg.image_height) {
    JSAMPROW row = &pixels[size_t{jpeg.next_scanline} * picture.width *
                           static_cast<size_t>(jpeg.input_components)];
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&jpeg);
  std::free(bytes);
  return file;
}

std::string ExifBlock(uint32_t orientation, bool big_endian) {
  const auto number = [big_endian](uint64_t value, size_t bytes) {
    return big_endian ? Big(value, bytes) : Little(value, bytes);
  };
  return (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4) + number(1, 2) +
         number(0x0112, 2) + number(3, 2) + number(1, 4) + number(orientation, 2) + number(0, 2) +
         number(0, 4);
}

}  // namespace tandem::testing
