// Resizing pictures as the models' own processor does, to the last bit.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tandem {

// RGB, a byte a channel, rows without padding: pixels[height * width * 3].  Borrowed.
struct PictureView {
  uint32_t width = 0;
  uint32_t height = 0;
  std::span<const uint8_t> pixels;
};

// Bilinear with antialiasing; returns [out_height, out_width, 3].  The aspect ratio is not kept.
//
// A pixel of a line of n pixels, made from a line of m, lies at c = (i + 1/2) m/n and takes the
// pixels j within max(1, m/n) of it:
//
//   out[i] = sum_j w_ij in[j],   w_ij ~ max(0, 1 - |j + 1/2 - c| / max(1, m/n)),  sum_j w_ij = 1
//
// Rows are resized first, then columns, each rounded to bytes; a side that keeps its length is left
// alone.  Weights are float64, then integers of 16 bits with as many binary places as the largest
// one allows.  That is what torchvision's resize (antialias=True, uint8 tensors) does on
// processors with AVX2, so pixels equal Gemma3ImageProcessor's there; Pillow's integers have 22
// places, so its pixels may differ by one.
// Source: PyTorch 2, upsample_bilinear2d_aa for uint8.
// REQUIRES sides of at least 1, pixels.size() == width * height * 3.
std::vector<uint8_t> ResizeBilinear(const PictureView& picture, uint32_t out_width,
                                    uint32_t out_height);

}  // namespace tandem
