#include "services/common/picture/prepare.h"

namespace tandem {

std::vector<float> PreparePicture(const PictureView& picture, const VisionConfig& config) {
  const uint32_t side = config.image_size;
  const std::vector<uint8_t> bytes = ResizeBilinear(picture, side, side);
  const size_t plane = size_t{side} * side;
  std::vector<float> values(3 * plane);
  const auto per_level = static_cast<float>(1.0 / config.pixels.rescale);
  for (size_t c = 0; c < 3; ++c) {
    const float mean = config.pixels.mean[c] * per_level;
    const float deviation = config.pixels.std[c] * per_level;
    for (size_t i = 0; i < plane; ++i) {
      values[c * plane + i] = (static_cast<float>(bytes[3 * i + c]) - mean) / deviation;
    }
  }
  return values;
}

}  // namespace tandem
