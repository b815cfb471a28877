#include "services/image_decoder/formats/pixel_sink.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/check.h"
#include "services/common/picture/decoder_wire.h"

namespace tandem::image_decoder {
namespace {

// `value` of 255 over white.
uint8_t OverWhite(uint8_t value, uint8_t opacity) {
  const uint32_t mixed = value * opacity + 255u * (255u - opacity);
  return static_cast<uint8_t>((mixed + 127) / 255);
}

}  // namespace

absl::Status Refused(std::string_view format, std::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrFormat("the %s %s", std::string(format), std::string(reason)));
}

absl::Status PixelSink::Begin(uint64_t width, uint64_t height, uint32_t orientation) {
  TANDEM_CHECK(width_ == 0);
  if (width == 0 || height == 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the picture has %d x %d pixels", width, height));
  }
  const uint64_t limit = std::min<uint64_t>(max_pixels_, out_.size() / 3);
  if (width > limit || height > limit / width) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the picture has %d x %d pixels; at most %d pixels are accepted: send it "
                        "smaller",
                        width, height, limit));
  }
  if (std::max(width, height) > kMaxPictureSide) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the picture has %d x %d pixels; sides of at most %d are accepted: cut it",
                        width, height, kMaxPictureSide));
  }
  width_ = static_cast<uint32_t>(width);
  height_ = static_cast<uint32_t>(height);
  const auto w = static_cast<int64_t>(width);
  const auto h = static_cast<int64_t>(height);
  const bool turned = orientation >= 5 && orientation <= 8;
  upright_width_ = turned ? height_ : width_;
  upright_height_ = turned ? width_ : height_;
  const int64_t row = upright_width_;
  const auto set = [this](int64_t first, int64_t step_x, int64_t step_y) {
    first_ = first;
    step_x_ = step_x;
    step_y_ = step_y;
  };
  // Source: Exif 2.3, section 4.6.4, Orientation.
  switch (orientation) {
    case 2:
      set(w - 1, -1, row);
      break;
    case 3:
      set((h - 1) * row + w - 1, -1, -row);
      break;
    case 4:
      set((h - 1) * row, 1, -row);
      break;
    case 5:
      set(0, row, 1);
      break;
    case 6:
      set(h - 1, row, -1);
      break;
    case 7:
      set((w - 1) * row + h - 1, -row, -1);
      break;
    case 8:
      set((w - 1) * row, -row, 1);
      break;
    default:
      set(0, 1, row);
  }
  return absl::OkStatus();
}

uint8_t* PixelSink::RowStart(uint32_t y) const {
  TANDEM_CHECK(y < height_);
  return out_.data() + 3 * (first_ + y * step_y_);
}

void PixelSink::PutRow(uint32_t y, const uint8_t* rgb) {
  uint8_t* out = RowStart(y);
  for (uint32_t x = 0; x < width_; ++x, rgb += 3) {
    uint8_t* pixel = out + 3 * step_x_ * x;
    for (int c = 0; c < 3; ++c) pixel[c] = rgb[c];
  }
}

void PixelSink::PutRgbaRow(uint32_t y, const uint8_t* rgba) {
  uint8_t* out = RowStart(y);
  for (uint32_t x = 0; x < width_; ++x, rgba += 4) {
    uint8_t* pixel = out + 3 * step_x_ * x;
    for (int c = 0; c < 3; ++c) pixel[c] = OverWhite(rgba[c], rgba[3]);
  }
}

}  // namespace tandem::image_decoder
