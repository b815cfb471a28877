// WebP, GIF and BMP files.
#include <gif_lib.h>
#include <webp/encode.h>
#include <webp/mux.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "services/image_decoder/testing/picture_files.h"

namespace tandem::testing {
namespace {

// Tests only: a library that cannot write is a broken machine.
void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "picture_files: %s\n", what);
  std::abort();
}

std::string Little(uint64_t value, size_t bytes) {
  std::string out;
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// Numbers of colours, the first 256, and their table.
struct Indexed {
  std::vector<uint8_t> pixels;
  std::array<std::array<uint8_t, 3>, 256> colours{};
};
Indexed MakeIndexed(const TestPicture& picture) {
  Indexed indexed;
  std::map<std::array<uint8_t, 3>, uint8_t> numbers;
  for (size_t i = 0; i < picture.rgba.size(); i += 4) {
    const std::array<uint8_t, 3> colour = {picture.rgba[i], picture.rgba[i + 1],
                                           picture.rgba[i + 2]};
    auto found = numbers.find(colour);
    if (found == numbers.end() && numbers.size() < 256) {
      const auto number = static_cast<uint8_t>(numbers.size());
      indexed.colours[number] = colour;
      found = numbers.emplace(colour, number).first;
    }
    indexed.pixels.push_back(found == numbers.end() ? 0 : found->second);
  }
  return indexed;
}

int AppendGif(GifFileType* gif, const GifByteType* bytes, int size) {
  static_cast<std::string*>(gif->UserData)
      ->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  return size;
}

void WriteGifFrame(GifFileType* gif, const TestPicture& picture, const Indexed& indexed,
                   const GifOptions& options, bool upside_down) {
  if (options.transparent >= 0) {
    GraphicsControlBlock control{};
    control.TransparentColor = options.transparent;
    GifByteType bytes[4];
    EGifGCBToExtension(&control, bytes);
    EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, 4, bytes);
  }
  const auto width = static_cast<int>(picture.width);
  const auto height = static_cast<int>(picture.height);
  Require(EGifPutImageDesc(gif, static_cast<int>(options.left), 0, width, height,
                           options.interlaced, nullptr) == GIF_OK,
          "EGifPutImageDesc");
  const auto put_rows = [&](int first, int step) {
    for (int y = first; y < height; y += step) {
      const int from = upside_down ? height - 1 - y : y;
      std::vector<GifPixelType> line(
          indexed.pixels.begin() + static_cast<int64_t>(from) * width,
          indexed.pixels.begin() + static_cast<int64_t>(from + 1) * width);
      Require(EGifPutLine(gif, line.data(), width) == GIF_OK, "EGifPutLine");
    }
  };
  if (!options.interlaced) return put_rows(0, 1);
  put_rows(0, 8);
  put_rows(4, 8);
  put_rows(2, 4);
  put_rows(1, 2);
}

std::string EncodedWebp(const TestPicture& picture, bool lossless) {
  uint8_t* bytes = nullptr;
  const auto width = static_cast<int>(picture.width);
  const auto height = static_cast<int>(picture.height);
  const size_t size =
      lossless ? WebPEncodeLosslessRGBA(picture.rgba.data(), width, height, 4 * width, &bytes)
               : WebPEncodeRGBA(picture.rgba.data(), width, height, 4 * width, 95, &bytes);
  Require(size > 0, "WebPEncode");
  std::string file(reinterpret_cast<const char*>(bytes), size);
  WebPFree(bytes);
  return file;
}

WebPData DataOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

std::string AnimatedWebp(const std::string& frame) {
  WebPMux* mux = WebPMuxNew();
  WebPMuxFrameInfo info{};
  info.bitstream = DataOf(frame);
  info.duration = 100;
  info.id = WEBP_CHUNK_ANMF;
  for (int i = 0; i < 2; ++i) Require(WebPMuxPushFrame(mux, &info, 1) == WEBP_MUX_OK, "frame");
  const WebPMuxAnimParams parameters{0xffffffff, 0};
  Require(WebPMuxSetAnimationParams(mux, &parameters) == WEBP_MUX_OK, "animation");
  WebPData assembled{};
  Require(WebPMuxAssemble(mux, &assembled) == WEBP_MUX_OK, "assemble");
  std::string file(reinterpret_cast<const char*>(assembled.bytes), assembled.size);
  WebPDataClear(&assembled);
  WebPMuxDelete(mux);
  return file;
}

}  // namespace

std::string WebpFile(const TestPicture& picture, const WebpOptions& options) {
  const std::string file = EncodedWebp(picture, options.lossless);
  if (options.animated) return AnimatedWebp(file);
  if (options.exif.empty()) return file;
  const WebPData data = DataOf(file);
  const WebPData exif = DataOf(options.exif);
  WebPMux* mux = WebPMuxCreate(&data, 1);
  Require(WebPMuxSetChunk(mux, "EXIF", &exif, 1) == WEBP_MUX_OK, "EXIF");
  WebPData assembled{};
  Require(WebPMuxAssemble(mux, &assembled) == WEBP_MUX_OK, "assemble");
  std::string out(reinterpret_cast<const char*>(assembled.bytes), assembled.size);
  WebPDataClear(&assembled);
  WebPMuxDelete(mux);
  return out;
}

std::string GifFile(const TestPicture& picture, const GifOptions& options) {
  const Indexed indexed = MakeIndexed(picture);
  std::string file;
  int error = 0;
  GifFileType* gif = EGifOpen(&file, AppendGif, &error);
  Require(gif != nullptr, "EGifOpen");
  EGifSetGifVersion(gif, true);
  GifColorType colours[256];
  for (size_t i = 0; i < 256; ++i) {
    colours[i] = {indexed.colours[i][0], indexed.colours[i][1], indexed.colours[i][2]};
  }
  ColorMapObject* map = GifMakeMapObject(256, colours);
  Require(EGifPutScreenDesc(gif, static_cast<int>(picture.width + options.left),
                            static_cast<int>(picture.height), 8, 0, map) == GIF_OK,
          "EGifPutScreenDesc");
  for (int i = 0; i < options.num_frames; ++i) {
    WriteGifFrame(gif, picture, indexed, options, i > 0);
  }
  Require(EGifCloseFile(gif, &error) == GIF_OK, "EGifCloseFile");
  GifFreeMapObject(map);
  return file;
}

std::string BmpFile(const TestPicture& picture, const BmpOptions& options) {
  const Indexed indexed = MakeIndexed(picture);
  const bool masks = options.bit_fields;
  const size_t info_bytes = masks ? 108 : 40;
  const size_t palette_bytes = options.bits == 8 ? 1024 : 0;
  const size_t stride = (size_t{picture.width} * options.bits + 31) / 32 * 4;
  const auto height = static_cast<int64_t>(picture.height);
  std::string file = "BM" + Little(14 + info_bytes + palette_bytes + stride * picture.height, 4) +
                     Little(0, 4) + Little(14 + info_bytes + palette_bytes, 4);
  file += Little(info_bytes, 4) + Little(picture.width, 4) +
          Little(static_cast<uint64_t>(options.top_down ? -height : height), 4) + Little(1, 2) +
          Little(options.bits, 2) + Little(masks ? 3 : 0, 4) + std::string(20, '\0');
  if (masks) {
    file += Little(0xff, 4) + Little(0xff00, 4) + Little(0xff0000, 4) + Little(0xff000000, 4);
    file += std::string(info_bytes - 56, '\0');
  }
  for (size_t i = 0; i < palette_bytes / 4; ++i) {
    const auto& colour = indexed.colours[i];
    file += {static_cast<char>(colour[2]), static_cast<char>(colour[1]),
             static_cast<char>(colour[0]), '\0'};
  }
  for (uint32_t i = 0; i < picture.height; ++i) {
    const uint32_t y = options.top_down ? i : picture.height - 1 - i;
    std::string row;
    for (uint32_t x = 0; x < picture.width; ++x) {
      const size_t at = size_t{y} * picture.width + x;
      const uint8_t* p = &picture.rgba[4 * at];
      if (options.bits == 8) row += static_cast<char>(indexed.pixels[at]);
      if (options.bits == 16) {
        row += Little(static_cast<uint64_t>((p[0] >> 3) << 10 | (p[1] >> 3) << 5 | p[2] >> 3), 2);
      }
      if (options.bits == 24) row += Little(uint64_t{p[0]} << 16 | uint64_t{p[1]} << 8 | p[2], 3);
      if (options.bits == 32 && masks) row.append(reinterpret_cast<const char*>(p), 4);
      if (options.bits == 32 && !masks) {
        row += Little(uint64_t{p[0]} << 16 | uint64_t{p[1]} << 8 | p[2], 4);
      }
    }
    row.resize(stride);
    file += row;
  }
  return file;
}

}  // namespace tandem::testing
