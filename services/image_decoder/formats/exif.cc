#include "services/image_decoder/formats/exif.h"

#include <algorithm>
#include <cstring>

namespace tandem::image_decoder {
namespace {

constexpr uint8_t kExifPrefix[] = {'E', 'x', 'i', 'f', 0, 0};
constexpr uint32_t kOrientationTag = 0x0112;
constexpr uint32_t kShort = 3;
constexpr size_t kEntryBytes = 12;

// Numbers of a TIFF block in its byte order; 0 beyond its end.
class TiffReader {
 public:
  TiffReader(std::span<const uint8_t> bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian) {}

  uint32_t U16(size_t at) const { return Number(at, 2); }
  uint32_t U32(size_t at) const { return Number(at, 4); }

 private:
  uint32_t Number(size_t at, size_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value = value << 8 | bytes_[at + (big_endian_ ? i : size - 1 - i)];
    }
    return value;
  }

  std::span<const uint8_t> bytes_;
  bool big_endian_;
};

}  // namespace

uint32_t ExifOrientation(std::span<const uint8_t> exif) {
  if (exif.size() >= sizeof(kExifPrefix) &&
      std::memcmp(exif.data(), kExifPrefix, sizeof(kExifPrefix)) == 0) {
    exif = exif.subspan(sizeof(kExifPrefix));
  }
  if (exif.size() < 8 || exif[0] != exif[1] || (exif[0] != 'I' && exif[0] != 'M')) return 1;
  const TiffReader tiff(exif, exif[0] == 'M');
  if (tiff.U16(2) != 42) return 1;
  const size_t directory = tiff.U32(4);
  const uint32_t num_entries = tiff.U16(directory);
  for (uint32_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (entry >= exif.size()) break;
    if (tiff.U16(entry) != kOrientationTag) continue;
    const uint32_t value = tiff.U16(entry + 8);
    const bool valid = tiff.U16(entry + 2) == kShort && tiff.U32(entry + 4) == 1;
    return valid && value >= 1 && value <= 8 ? value : 1;
  }
  return 1;
}

}  // namespace tandem::image_decoder
