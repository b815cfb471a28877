#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/image_decoder/formats/decode.h"
#include "services/image_decoder/formats/exif.h"

namespace tandem::image_decoder {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr uint32_t kMaxSide = 1u << 24;
// Ancillary chunks carry texts and colours; one of this size is an attack.
constexpr png_alloc_size_t kMaxChunkBytes = 8u << 20;

uint32_t BigEndian32(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

// What libpng leaves to its callers: animations and the orientation.
struct Chunks {
  bool animated = false;
  uint32_t orientation = 1;
};

Chunks ScanChunks(std::span<const uint8_t> file) {
  Chunks chunks;
  size_t at = kSignatureBytes;
  while (file.size() - at >= 12) {
    const uint32_t length = BigEndian32(&file[at]);
    if (length > file.size() - at - 12) break;
    const uint8_t* type = &file[at + 4];
    if (std::memcmp(type, "acTL", 4) == 0) chunks.animated = true;
    if (std::memcmp(type, "eXIf", 4) == 0) {
      chunks.orientation = ExifOrientation(file.subspan(at + 8, length));
    }
    at += 12 + size_t{length};
  }
  return chunks;
}

// Everything that must outlive a jump out of libpng.
struct PngReader {
  std::span<const uint8_t> file;
  size_t at = 0;
  bool cut_off = false;
  std::string message;
  absl::Status status;
  std::vector<uint8_t> pixels;
  png_structp png = nullptr;
  png_infop info = nullptr;

  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void ReadBytes(png_structp png, png_bytep out, size_t size) {
  auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (reader->file.size() - reader->at < size) {
    reader->cut_off = true;
    png_error(png, "cut off");
  }
  std::memcpy(out, reader->file.data() + reader->at, size);
  reader->at += size;
}

[[noreturn]] void OnError(png_structp png, png_const_charp message) {
  static_cast<PngReader*>(png_get_error_ptr(png))->message = message;
  png_longjmp(png, 1);
}
void OnWarning(png_structp, png_const_charp) {}

// Every format as RGBA, 8 bits a channel.
void AskForRgba(png_structp png) {
  png_set_scale_16(png);
  png_set_expand(png);
  png_set_gray_to_rgb(png);
  png_set_add_alpha(png, 0xff, PNG_FILLER_AFTER);
}

// Only the chunks that decide pixels: others, with their compressed texts, are skipped unread.
void SkipOtherChunks(png_structp png) {
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  static constexpr png_byte kTransparency[] = "tRNS";
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_AS_DEFAULT, kTransparency, 1);
  png_set_chunk_malloc_max(png, kMaxChunkBytes);
  png_set_user_limits(png, kMaxSide, kMaxSide);
}

// False after a jump out of libpng; the reader then holds what it said.
bool ReadRows(PngReader* reader, uint32_t orientation, PixelSink* sink) {
  png_structp png = reader->png;
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_read_fn(png, reader, ReadBytes);
  SkipOtherChunks(png);
  png_read_info(png, reader->info);
  const uint32_t width = png_get_image_width(png, reader->info);
  const uint32_t height = png_get_image_height(png, reader->info);
  reader->status = sink->Begin(width, height, orientation);
  if (!reader->status.ok()) return true;
  AskForRgba(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, reader->info);
  const size_t row_bytes = 4 * size_t{width};
  if (png_get_rowbytes(png, reader->info) != row_bytes) png_error(png, "row size");
  // An interlaced picture is complete only after its last pass.
  const size_t kept_rows = passes == 1 ? 1 : height;
  reader->pixels.resize(kept_rows * row_bytes);
  for (int pass = 0; pass < passes; ++pass) {
    for (uint32_t y = 0; y < height; ++y) {
      uint8_t* row = &reader->pixels[passes == 1 ? 0 : y * row_bytes];
      png_read_row(png, row, nullptr);
      if (pass == passes - 1) sink->PutRgbaRow(y, row);
    }
  }
  png_read_end(png, nullptr);
  return true;
}

}  // namespace

absl::Status DecodePng(std::span<const uint8_t> file, PixelSink& sink) {
  const Chunks chunks = ScanChunks(file);
  if (chunks.animated) return Refused("PNG", "is animated: send a still picture");
  PngReader reader;
  reader.file = file;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, OnError, OnWarning);
  if (reader.png != nullptr) reader.info = png_create_info_struct(reader.png);
  if (reader.info == nullptr) return Refused("PNG", "needs more memory than it may take");
  if (ReadRows(&reader, chunks.orientation, &sink)) return reader.status;
  if (reader.cut_off) return Refused("PNG", "is cut off");
  return Refused("PNG", absl::StrFormat("is damaged: %s", reader.message));
}

}  // namespace tandem::image_decoder
