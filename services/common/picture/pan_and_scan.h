// Crops of pictures that are much wider than high, or higher than wide, as Gemma3ImageProcessor
// makes them with do_pan_and_scan: the encoder's square distorts such pictures.
#pragma once

#include <cstdint>
#include <vector>

#include "services/common/picture/resize.h"

namespace tandem {

inline constexpr uint32_t kMostCrops = 4;
inline constexpr char kPanAndScanHelp[] =
    "Show the model crops of pictures that are much wider than high or higher than wide, besides "
    "the whole (docs/pictures.md)";

// In pixels.
struct CropRect {
  uint32_t left = 0;
  uint32_t top = 0;
  uint32_t width = 0;
  uint32_t height = 0;

  friend bool operator==(const CropRect&, const CropRect&) = default;
};

// Along the longer side, one after the other, 2 to kMostCrops of equal length, but the last has what
// is left: as many as the ratio of the sides, rounded, and not so many that one is shorter than 256
// pixels.  None if the ratio is below 1.2, or if a side of the first is shorter than 256 pixels.
// REQUIRES sides of at least 1.
std::vector<CropRect> PanAndScan(uint32_t width, uint32_t height);

// The crop's pixels, as PictureView has them.  REQUIRES the crop lies within the picture.
std::vector<uint8_t> CropPixels(const PictureView& picture, const CropRect& crop);

}  // namespace tandem
