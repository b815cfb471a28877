#include "services/common/picture/pan_and_scan.h"

#include <algorithm>
#include <utility>

#include "services/common/base/check.h"

namespace tandem {
namespace {

constexpr uint32_t kLeastCropSide = 256;
constexpr double kLeastRatio = 1.2;
constexpr size_t kChannels = 3;

}  // namespace

std::vector<CropRect> PanAndScan(uint32_t width, uint32_t height) {
  TANDEM_CHECK(width > 0 && height > 0);
  const auto [shorter, longer] = std::minmax(width, height);
  const double ratio = static_cast<double>(longer) / shorter;
  if (ratio < kLeastRatio) return {};
  const uint32_t rounded = static_cast<uint32_t>(std::min(ratio + 0.5, double{kMostCrops}));
  const uint32_t num_crops = std::clamp(std::min(rounded, longer / kLeastCropSide), 2u, kMostCrops);
  const uint32_t side = (longer + num_crops - 1) / num_crops;  // the last one's may be less
  if (std::min(side, shorter) < kLeastCropSide) return {};
  std::vector<CropRect> crops;
  for (uint32_t at = 0; at < longer; at += side) {
    CropRect crop = {.left = at, .width = std::min(side, longer - at), .height = shorter};
    if (height > width) crop = {.top = at, .width = shorter, .height = crop.width};
    crops.push_back(crop);
  }
  return crops;
}

std::vector<uint8_t> CropPixels(const PictureView& picture, const CropRect& crop) {
  TANDEM_CHECK(crop.left + crop.width <= picture.width && crop.top + crop.height <= picture.height);
  std::vector<uint8_t> pixels;
  pixels.reserve(crop.width * kChannels * crop.height);
  for (uint32_t y = 0; y < crop.height; ++y) {
    const uint8_t* row =
        picture.pixels.data() + ((size_t{crop.top} + y) * picture.width + crop.left) * kChannels;
    pixels.insert(pixels.end(), row, row + crop.width * kChannels);
  }
  return pixels;
}

}  // namespace tandem
