// From a picture's pixels to the numbers that a vision encoder takes.
#pragma once

#include <vector>

#include "services/common/model/vision_config.h"
#include "services/common/picture/resize.h"

namespace tandem {

// Resizes the picture to the encoder's square and normalises it; returns [3, image_size,
// image_size], one plane a channel:
//
//   value = (byte - mean / rescale) / (std / rescale)
//
// in float32, with both quotients rounded first: the bits of Gemma3ImageProcessor.
std::vector<float> PreparePicture(const PictureView& picture, const VisionConfig& config);

}  // namespace tandem
