// A picture's file to upright RGB pixels, for each format that clients send.
//
// The file is a stranger's.  Readers refuse what they cannot read whole: INVALID_ARGUMENT with a
// sentence for the client.  Libraries read the formats; these functions choose the settings, set
// the limits and check the result.  Colour profiles are ignored, as the models' own processor does.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "services/image_decoder/formats/pixel_sink.h"

namespace tandem::image_decoder {

// Decodes `file`, whatever its format: its first bytes decide, never a name.
absl::Status DecodePicture(std::span<const uint8_t> file, PixelSink& sink);

// libpng.  16 bits a channel are rounded to 8.  Animations (APNG) are refused.
absl::Status DecodePng(std::span<const uint8_t> file, PixelSink& sink);
// libjpeg-turbo, with its exact defaults (slow integer DCT, smooth upsampling), which Pillow uses too.
absl::Status DecodeJpeg(std::span<const uint8_t> file, PixelSink& sink);
// libwebp, lossy and lossless.  Animations are refused.
absl::Status DecodeWebp(std::span<const uint8_t> file, PixelSink& sink);
// giflib.  The first frame; the canvas around it and its transparent pixels are white.
absl::Status DecodeGif(std::span<const uint8_t> file, PixelSink& sink);
// Uncompressed: 1, 4 and 8 bits with a palette; 16, 24 and 32 bits, also by bit masks.
absl::Status DecodeBmp(std::span<const uint8_t> file, PixelSink& sink);

}  // namespace tandem::image_decoder
