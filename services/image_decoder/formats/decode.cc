#include "services/image_decoder/formats/decode.h"

#include <cstring>
#include <new>
#include <string_view>

namespace tandem::image_decoder {
namespace {

using namespace std::string_view_literals;

bool HasAt(std::span<const uint8_t> file, size_t at, std::string_view magic) {
  return file.size() >= at + magic.size() &&
         std::memcmp(file.data() + at, magic.data(), magic.size()) == 0;
}

absl::Status DecodeByMagic(std::span<const uint8_t> file, PixelSink& sink) {
  if (HasAt(file, 0, "\x89PNG\r\n\x1a\n")) return DecodePng(file, sink);
  if (HasAt(file, 0, "\xff\xd8\xff")) return DecodeJpeg(file, sink);
  if (HasAt(file, 0, "RIFF") && HasAt(file, 8, "WEBP")) return DecodeWebp(file, sink);
  if (HasAt(file, 0, "GIF87a") || HasAt(file, 0, "GIF89a")) return DecodeGif(file, sink);
  if (HasAt(file, 0, "BM")) return DecodeBmp(file, sink);
  if (file.empty()) return absl::InvalidArgumentError("the picture is empty");
  return absl::InvalidArgumentError(
      "the picture is no PNG, JPEG, WebP, GIF or BMP file: send one of these formats");
}

}  // namespace

absl::Status DecodePicture(std::span<const uint8_t> file, PixelSink& sink) {
  try {
    return DecodeByMagic(file, sink);
  } catch (const std::bad_alloc&) {
    return absl::InvalidArgumentError(
        "the picture needs more memory to decode than it may take: send it smaller");
  }
}

}  // namespace tandem::image_decoder
