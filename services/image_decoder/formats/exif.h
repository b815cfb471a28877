// The one thing of EXIF that changes how a picture looks.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::image_decoder {

// The orientation, 1 to 8, that a block of EXIF data gives: a TIFF header ("II" or "MM"), with or
// without "Exif\0\0" before it.  1 where it gives no valid orientation; never fails: a broken block
// must not hide a good picture.
uint32_t ExifOrientation(std::span<const uint8_t> exif);

}  // namespace tandem::image_decoder
