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

// Adds a row to the sums of an output row.
void AddRow(int32_t weight, std::span<const uint8_t> row, int32_t* sums) {
  for (size_t i = 0; i < row.size(); ++i) sums[i] += weight * row[i];
}

}  // namespace

std::vector<uint8_t> ResizeBilinear(const PictureView& picture, uint32_t out_width,
                                    uint32_t out_height) {
  TANDEM_CHECK(picture.width > 0 && picture.height > 0 && out_width > 0 && out_height > 0);
  TANDEM_CHECK(picture.pixels.size() == uint64_t{picture.width} * picture.height * kChannels);
  const size_t row_bytes = size_t{out_width} * kChannels,
               in_bytes = size_t{picture.width} * kChannels;
  const bool resize_rows = picture.width != out_width,
             resize_columns = picture.height != out_height;
  const LineFilter rows = resize_rows ? MakeFilter(picture.width, out_width) : LineFilter();
  const LineFilter columns = resize_columns ? MakeFilter(picture.height, out_height) : LineFilter();
  std::vector<uint8_t> out(out_height * row_bytes);
  // A picture may be much higher than its result: its rows are not kept, but added to the output
  // rows that are made of them.
  std::vector<uint8_t> narrow(resize_rows ? row_bytes : 0);
  std::vector<int32_t> sums(resize_columns ? out_height * row_bytes : 0,
                            resize_columns ? 1 << (columns.places - 1) : 0);
  uint32_t first = 0;  // the first output row that is not done
  for (uint32_t y = 0; y < picture.height; ++y) {
    std::span<const uint8_t> row = picture.pixels.subspan(y * in_bytes, in_bytes);
    if (resize_rows) {
      ResizeRow(rows, row.data(), narrow.data());
      row = narrow;
    }
    if (!resize_columns) {
      std::ranges::copy(row, out.begin() + static_cast<ptrdiff_t>(y * row_bytes));
      continue;
    }
    // Taps begin and end in order.
    while (columns.taps[first].first + columns.taps[first].count <= y) ++first;
    for (uint32_t o = first; o < out_height && columns.taps[o].first <= y; ++o) {
      const Taps& taps = columns.taps[o];
      if (y >= taps.first + taps.count) continue;
      AddRow(columns.weights[taps.weights + y - taps.first], row, &sums[o * row_bytes]);
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) out[i] = ToByte(sums[i], columns.places);
  return out;
}

}  // namespace tandem
