// BMP files, by a reader of its own: no library of Debian reads them alone.
//
//   file   = "BM" u32:file_size u32:reserved u32:pixel_offset info masks? palette? rows
//   info   = u32:info_size, then 12 bytes' worth of 16-bit numbers (OS/2) or i32 ones
//   rows   = bottom row first unless the height is negative; each padded to 4 bytes
//
// Source: Microsoft's documentation of BITMAPINFOHEADER, BITMAPV4HEADER and BITMAPV5HEADER.
#include <array>
#include <bit>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/image_decoder/formats/decode.h"

namespace tandem::image_decoder {
namespace {

constexpr size_t kFileHeaderBytes = 14;
constexpr uint32_t kUncompressed = 0;
constexpr uint32_t kBitFields = 3;
constexpr uint32_t kBitFieldsWithAlpha = 6;

// A channel of a pixel: `mask` of its bits.
struct Channel {
  uint32_t mask = 0;

  // 0 to 255; `absent` for an empty mask.
  uint8_t Of(uint32_t pixel, uint8_t absent) const {
    if (mask == 0) return absent;
    const int shift = std::countr_zero(mask);
    const uint64_t most = mask >> shift;
    const uint64_t value = (pixel & mask) >> shift;
    return static_cast<uint8_t>((value * 255 + most / 2) / most);
  }
};

class BmpReader {
 public:
  explicit BmpReader(std::span<const uint8_t> file) : file_(file) {}

  absl::Status Read(PixelSink& sink) {
    TANDEM_RETURN_IF_ERROR(ReadInfo());
    TANDEM_RETURN_IF_ERROR(ReadMasks());
    const auto height = static_cast<uint64_t>(std::llabs(height_));
    TANDEM_RETURN_IF_ERROR(sink.Begin(static_cast<uint64_t>(width_), height, 1));
    TANDEM_RETURN_IF_ERROR(ReadPalette());
    const uint64_t stride = (static_cast<uint64_t>(width_) * bits_ + 31) / 32 * 4;
    const uint64_t pixels = U32(10);
    if (pixels < kFileHeaderBytes || pixels > file_.size() ||
        (file_.size() - pixels) / stride < height) {
      return Refused("BMP", "is cut off");
    }
    std::vector<uint8_t> rgba(4 * static_cast<size_t>(width_));
    for (uint64_t i = 0; i < height; ++i) {
      UnpackRow(file_.subspan(pixels + i * stride, stride), rgba);
      sink.PutRgbaRow(static_cast<uint32_t>(height_ < 0 ? i : height - 1 - i), rgba.data());
    }
    return absl::OkStatus();
  }

 private:
  // Little-endian numbers; 0 beyond the end.
  uint32_t Number(size_t at, size_t size) const {
    if (at > file_.size() || file_.size() - at < size) return 0;
    uint32_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | file_[at + i];
    return value;
  }
  uint32_t U16(size_t at) const { return Number(at, 2); }
  uint32_t U32(size_t at) const { return Number(at, 4); }
  int64_t I32(size_t at) const { return static_cast<int32_t>(U32(at)); }

  absl::Status ReadInfo() {
    info_bytes_ = U32(kFileHeaderBytes);
    const bool os2 = info_bytes_ == 12;
    if ((!os2 && info_bytes_ < 40) || info_bytes_ > 4096 ||
        file_.size() < kFileHeaderBytes + info_bytes_) {
      return Refused("BMP", "is damaged: its header cannot be read");
    }
    const size_t at = kFileHeaderBytes + 4;
    width_ = os2 ? U16(at) : I32(at);
    height_ = os2 ? U16(at + 2) : I32(at + 4);
    bits_ = os2 ? U16(at + 6) : U16(at + 10);
    compression_ = os2 ? kUncompressed : U32(at + 12);
    num_colours_ = os2 ? 0 : U32(at + 28);
    colour_bytes_ = os2 ? 3 : 4;
    if (width_ < 0) return Refused("BMP", absl::StrFormat("has a width of %d", width_));
    const bool masked = compression_ == kBitFields || compression_ == kBitFieldsWithAlpha;
    if (compression_ != kUncompressed && !(masked && (bits_ == 16 || bits_ == 32))) {
      return Refused("BMP", absl::StrFormat("has compression %d of %d bits, which is not read: "
                                            "send it as PNG",
                                            compression_, bits_));
    }
    for (const uint32_t supported : {1u, 4u, 8u, 16u, 24u, 32u}) {
      if (bits_ == supported) return absl::OkStatus();
    }
    return Refused("BMP", absl::StrFormat("has %d bits a pixel", bits_));
  }

  absl::Status ReadMasks() {
    if (bits_ == 16) channels_ = {{{0x7c00}, {0x03e0}, {0x001f}, {0}}};
    if (bits_ == 32) channels_ = {{{0xff0000}, {0x00ff00}, {0x0000ff}, {0}}};
    after_info_ = kFileHeaderBytes + info_bytes_;
    if (compression_ == kUncompressed) return absl::OkStatus();
    // The masks follow the 40 bytes of the first version; later versions contain them.
    const bool inside = info_bytes_ >= 52;
    const bool alpha = info_bytes_ >= 56 || (!inside && compression_ == kBitFieldsWithAlpha);
    const size_t at = kFileHeaderBytes + 40;
    const size_t num_masks = alpha ? 4 : 3;
    if (file_.size() < at + 4 * num_masks) return Refused("BMP", "is cut off");
    for (size_t c = 0; c < num_masks; ++c) {
      const uint32_t mask = U32(at + 4 * c);
      // One run of ones.
      const uint32_t run = mask == 0 ? 0 : mask >> std::countr_zero(mask);
      if ((run & (run + 1)) != 0 || (bits_ == 16 && mask > 0xffff)) {
        return Refused("BMP", absl::StrFormat("has a channel mask of %#x", mask));
      }
      channels_[c].mask = mask;
    }
    if (!inside) after_info_ += 4 * num_masks;
    return absl::OkStatus();
  }

  absl::Status ReadPalette() {
    if (bits_ > 8) return absl::OkStatus();
    const uint32_t most = 1u << bits_;
    const uint32_t count = num_colours_ == 0 ? most : num_colours_;
    if (count > most) {
      return Refused("BMP", absl::StrFormat("has %d colours for %d bits a pixel", count, bits_));
    }
    if (file_.size() < after_info_ + size_t{count} * colour_bytes_) {
      return Refused("BMP", "is cut off");
    }
    for (uint32_t i = 0; i < count; ++i) {
      const uint8_t* colour = &file_[after_info_ + size_t{i} * colour_bytes_];
      palette_[i] = {colour[2], colour[1], colour[0]};
    }
    return absl::OkStatus();
  }

  void UnpackRow(std::span<const uint8_t> row, std::vector<uint8_t>& rgba) const {
    for (size_t x = 0; x < static_cast<size_t>(width_); ++x) {
      uint8_t* out = &rgba[4 * x];
      out[3] = 255;
      if (bits_ <= 8) {
        const size_t bit = x * bits_;
        const uint32_t index = row[bit / 8] >> (8 - bits_ - bit % 8) & ((1u << bits_) - 1);
        for (size_t c = 0; c < 3; ++c) out[c] = palette_[index][c];
      } else if (bits_ == 24) {
        for (size_t c = 0; c < 3; ++c) out[c] = row[3 * x + 2 - c];
      } else {
        const size_t bytes = bits_ / 8;
        uint32_t pixel = 0;
        for (size_t i = bytes; i-- > 0;) pixel = pixel << 8 | row[bytes * x + i];
        for (size_t c = 0; c < 4; ++c) out[c] = channels_[c].Of(pixel, c == 3 ? 255 : 0);
      }
    }
  }

  std::span<const uint8_t> file_;
  uint32_t info_bytes_ = 0;
  int64_t width_ = 0;
  int64_t height_ = 0;  // negative: the top row comes first
  uint32_t bits_ = 0;   // of a pixel
  uint32_t compression_ = kUncompressed;
  uint32_t num_colours_ = 0;  // 0: as many as `bits_` allow
  uint32_t colour_bytes_ = 4;
  size_t after_info_ = 0;  // where the palette begins
  std::array<Channel, 4> channels_{};
  std::array<std::array<uint8_t, 3>, 256> palette_{};
};

}  // namespace

absl::Status DecodeBmp(std::span<const uint8_t> file, PixelSink& sink) {
  return BmpReader(file).Read(sink);
}

}  // namespace tandem::image_decoder
