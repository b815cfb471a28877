// Where a format's reader puts its rows: turns them upright and lays them over white on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace tandem::image_decoder {

// INVALID_ARGUMENT "the FORMAT REASON": how every reader here refuses a file.
absl::Status Refused(std::string_view format, std::string_view reason);

// Single-thread.
class PixelSink {
 public:
  // Pixels go to `out`, three bytes each.  Borrowed; must outlive this.
  PixelSink(std::span<uint8_t> out, uint64_t max_pixels) : out_(out), max_pixels_(max_pixels) {}

  // Sets the size of the stored picture and its EXIF orientation, 1 to 8; others count as 1.
  // INVALID_ARGUMENT for a side of 0 or above kMaxPictureSide and for more pixels than are accepted.  Readers call it once,
  // before they allocate anything by the size.
  absl::Status Begin(uint64_t width, uint64_t height, uint32_t orientation);

  // Stores row `y` of the stored picture, in any order: [width, 3] bytes.
  void PutRow(uint32_t y, const uint8_t* rgb);
  // The same of [width, 4] bytes whose fourth is the opacity: laid over white.
  void PutRgbaRow(uint32_t y, const uint8_t* rgba);

  // Of the upright picture; 0 before Begin.
  uint32_t width() const { return upright_width_; }
  uint32_t height() const { return upright_height_; }

 private:
  uint8_t* RowStart(uint32_t y) const;

  std::span<uint8_t> out_;
  uint64_t max_pixels_;
  uint32_t width_ = 0, height_ = 0;  // of the stored picture
  uint32_t upright_width_ = 0, upright_height_ = 0;
  // Pixel (x, y) of the stored picture is number first_ + x * step_x_ + y * step_y_ of `out`.
  int64_t first_ = 0, step_x_ = 1, step_y_ = 0;
};

}  // namespace tandem::image_decoder
