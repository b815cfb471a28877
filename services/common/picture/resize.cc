#include "services/common/picture/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "services/common/base/check.h"

namespace tandem {
namespace {

constexpr int kChannels = 3;
constexpr int kMaxPlaces = 22;

// The pixels that an output pixel is made of.
struct Taps {
  uint32_t first = 0;
  uint32_t count = 0;
  size_t weights = 0;  // where its weights begin
};

struct LineFilter {
  std::vector<Taps> taps;  // [out]
  std::vector<int32_t> weights;
  int places = 0;  // a weight of 1 is 1 << places
};

LineFilter MakeFilter(uint32_t in, uint32_t out) {
  const double scale = static_cast<double>(in) / out;
  const double support = std::max(scale, 1.0);
  const double inverse = scale >= 1.0 ? 1.0 / scale : 1.0;
  LineFilter filter;
  std::vector<double> weights;
  double largest = 0;
  for (uint32_t i = 0; i < out; ++i) {
    const double centre = scale * (i + 0.5);
    const auto first = std::max(static_cast<int64_t>(centre - support + 0.5), int64_t{0});
    const auto last = std::min(static_cast<int64_t>(centre + support + 0.5), int64_t{in});
    const Taps taps{static_cast<uint32_t>(first), static_cast<uint32_t>(last - first),
                    weights.size()};
    double sum = 0;
    for (uint32_t k = 0; k < taps.count; ++k) {
      const double distance = (static_cast<double>(k + first) - centre + 0.5) * inverse;
      weights.push_back(std::max(0.0, 1.0 - std::abs(distance)));
      sum += weights.back();
    }
    for (size_t k = taps.weights; k < weights.size(); ++k) {
      weights[k] /= sum;
      largest = std::max(largest, weights[k]);
    }
    filter.taps.push_back(taps);
  }
  while (filter.places < kMaxPlaces &&
         static_cast<int>(0.5 + largest * (1 << (filter.places + 1))) < 1 << 15) {
    ++filter.places;
  }
  for (const double weight : weights) {
    filter.weights.push_back(static_cast<int32_t>(0.5 + weight * (1 << filter.places)));
  }
  return filter;
}

uint8_t ToByte(int32_t sum, int places) {
  return static_cast<uint8_t>(std::clamp(sum >> places, 0, 255));
}

void ResizeRow(const LineFilter& filter, const uint8_t* in, uint8_t* out) {
  const int32_t half = 1 << (filter.places - 1);
  for (const Taps& taps : filter.taps) {
    int32_t sum[kChannels] = {half, half, half};
    const uint8_t* pixel = in + size_t{kChannels} * taps.first;
    for (uint32_t k = 0; k < taps.count; ++k, pixel += kChannels) {
      const int32_t weight = filter.weights[taps.weights + k];
      for (int c = 0; c < kChannels; ++c) sum[c] += weight * pixel[c];
    }
    for (int c = 0; c < kChannels; ++c) *out++ = ToByte(sum[c], filter.places);
  }
}

// One output row from the rows above and below it, each `row_bytes` long.
void BlendRows(const LineFilter& filter, const Taps& taps, const uint8_t* rows, size_t row_bytes,
               std::vector<int32_t>& sums, uint8_t* out) {
  std::fill(sums.begin(), sums.end(), 1 << (filter.places - 1));
  for (uint32_t k = 0; k < taps.count; ++k) {
    const int32_t weight = filter.weights[taps.weights + k];
    const uint8_t* row = rows + (taps.first + k) * row_bytes;
    for (size_t i = 0; i < row_bytes; ++i) sums[i] += weight * row[i];
  }
  for (size_t i = 0; i < row_bytes; ++i) out[i] = ToByte(sums[i], filter.places);
}

}  // namespace

std::vector<uint8_t> ResizeBilinear(const PictureView& picture, uint32_t out_width,
                                    uint32_t out_height) {
  TANDEM_CHECK(picture.width > 0 && picture.height > 0 && out_width > 0 && out_height > 0);
  TANDEM_CHECK(picture.pixels.size() == uint64_t{picture.width} * picture.height * kChannels);
  const size_t row_bytes = size_t{out_width} * kChannels;
  std::vector<uint8_t> narrow;
  const uint8_t* rows = picture.pixels.data();
  if (picture.width != out_width) {
    const LineFilter filter = MakeFilter(picture.width, out_width);
    narrow.resize(picture.height * row_bytes);
    for (size_t y = 0; y < picture.height; ++y) {
      ResizeRow(filter, rows + y * picture.width * kChannels, &narrow[y * row_bytes]);
    }
    rows = narrow.data();
  }
  if (picture.height == out_height) return {rows, rows + out_height * row_bytes};
  const LineFilter filter = MakeFilter(picture.height, out_height);
  std::vector<uint8_t> out(out_height * row_bytes);
  std::vector<int32_t> sums(row_bytes);
  for (size_t y = 0; y < out_height; ++y) {
    BlendRows(filter, filter.taps[y], rows, row_bytes, sums, &out[y * row_bytes]);
  }
  return out;
}

}  // namespace tandem
