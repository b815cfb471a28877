// A random matrix in tiles on the device, with its numbers read straight from the definition of the
// formats: no code here is shared with the packers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/tensor/dtype.h"
#include "services/common/tensor/iq4_nl.h"
#include "services/gpu_worker/kernels/kernel_test_device.h"

namespace tandem::gpu {

struct TilePlane {
  uint32_t bytes;     // of a piece
  uint32_t elements;  // it covers
};
inline std::vector<TilePlane> TilePlanes(DType format) {
  switch (format) {
    case DType::kF16:
    case DType::kBf16:
      return {{16, 8}};
    case DType::kQ8_0:
      return {{16, 16}, {16, 256}};
    case DType::kQ4_0:
    case DType::kIq4Nl:
      return {{16, 32}, {16, 256}};
    case DType::kQ5_0:
      return {{16, 32}, {16, 128}, {16, 256}};
    case DType::kQ4_K:
      return {{16, 32}, {16, 256}, {4, 256}};
    case DType::kQ5_K:
      return {{16, 32}, {16, 128}, {16, 256}, {4, 256}};
    case DType::kQ6_K:
      return {{16, 32}, {16, 64}, {16, 256}, {2, 256}};
    case DType::kF32:
      break;  // no tiles of it are made here
  }
  return {};
}

class TileMatrix {
 public:
  // `shard_rows`: rows of each shard, multiples of 32; the last shard takes the rest.
  TileMatrix(const vulkan::Device& device, DType format, uint32_t rows, uint32_t cols,
             uint32_t seed, const std::vector<uint32_t>& shard_rows = {})
      : format_(format), cols_(cols), random_(seed) {
    tensor = {format, rows, cols, {}};
    for (uint32_t first = 0; first < rows;) {
      uint32_t n = rows - first;
      if (tensor.shards.size() < shard_rows.size()) n = shard_rows[tensor.shards.size()];
      DeviceShard& shard = tensor.shards.emplace_back();
      shard.first_row = first;
      shard.num_rows = n;
      std::vector<std::vector<uint8_t>> planes;
      const auto kinds = TilePlanes(format);
      for (size_t p = 0; p < kinds.size(); ++p) {
        const uint32_t pieces = DivideUp(cols, kinds[p].elements);
        planes.push_back(Fill(p, size_t{DivideUp(n, 32)} * 32 * pieces * kinds[p].bytes));
        arrays_.emplace_back(device, planes.back());
        shard.plane[p] = arrays_.back().address();
      }
      for (uint32_t r = 0; r < n; ++r) {
        for (uint32_t k = 0; k < cols; ++k) values.push_back(At(planes, r, k));
      }
      first += n;
    }
  }

  std::span<const float> row(uint32_t r) const {
    return std::span(values).subspan(size_t{r} * cols_, cols_);
  }

  DeviceTensor tensor;
  std::vector<float> values;  // [rows, cols]

 private:
  // Random bytes, and where they are floats, floats of a sane size.
  std::vector<uint8_t> Fill(size_t plane, size_t bytes) {
    std::vector<uint8_t> data(bytes);
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random_());
    const size_t last = TilePlanes(format_).size() - 1;
    const bool is_float = format_ == DType::kF16 || format_ == DType::kBf16;
    const bool has_minimum = format_ == DType::kQ4_K || format_ == DType::kQ5_K;
    if (plane == last) {
      std::normal_distribution<float> normal(0.0f, is_float ? 1.0f : 0.02f);
      for (size_t i = 0; i + 1 < bytes; i += 2) {
        const float value = normal(random_);
        const uint16_t half = format_ == DType::kBf16
                                  ? static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16)
                                  : FloatToHalf(value);
        std::memcpy(&data[i], &half, 2);
      }
    } else if (has_minimum && plane + 1 == last) {
      for (uint8_t& byte : data) byte &= 63;
    }
    return data;
  }

  using Planes = std::vector<std::vector<uint8_t>>;
  // The bytes of row `r`'s piece with column k.
  const uint8_t* Piece(const Planes& planes, size_t p, uint32_t r, uint32_t k) const {
    const TilePlane kind = TilePlanes(format_)[p];
    const size_t pieces = DivideUp(cols_, kind.elements);
    return &planes[p][((r / 32 * pieces + k / kind.elements) * 32 + r % 32) * kind.bytes];
  }
  static float Half(const uint8_t* bytes, uint32_t i) {
    uint16_t half = 0;
    std::memcpy(&half, bytes + 2 * i, 2);
    return HalfToFloat(half);
  }
  static uint32_t Word(const uint8_t* bytes, uint32_t i) {
    uint32_t word = 0;
    std::memcpy(&word, bytes + 4 * i, 4);
    return word;
  }

  float At(const Planes& planes, uint32_t r, uint32_t k) const {
    const uint8_t* first = Piece(planes, 0, r, k);
    const uint32_t e = k % 32, block = k / 32 % 8;
    const uint32_t in_half = e % 16, s = in_half / 4, i = in_half % 4;
    const int nibble = e < 16 ? first[e] & 15 : first[e - 16] >> 4;
    switch (format_) {
      case DType::kF16:
        return Half(first, k % 8);
      case DType::kBf16: {
        uint16_t bits = 0;
        std::memcpy(&bits, first + k % 8 * 2, 2);
        return std::bit_cast<float>(uint32_t{bits} << 16);
      }
      case DType::kQ8_0:
        return Half(Piece(planes, 1, r, k), block) *
               static_cast<float>(static_cast<int8_t>(first[k % 16]));
      case DType::kQ4_0:
        return Half(Piece(planes, 1, r, k), block) *
               static_cast<float>(nibble < 8 ? nibble : nibble - 16);
      case DType::kIq4Nl:
        return Half(Piece(planes, 1, r, k), block) * static_cast<float>(kIq4NlValues[nibble]);
      case DType::kQ5_0:
        return Half(Piece(planes, 2, r, k), block) *
               static_cast<float>((nibble | High(planes, r, k) << 4) - 16);
      case DType::kQ4_K:
      case DType::kQ5_K: {
        const bool five = format_ == DType::kQ5_K;
        const int q = five ? nibble | High(planes, r, k) << 4 : nibble;
        const uint8_t* scales = Piece(planes, five ? 2 : 1, r, k);
        const uint8_t* super = Piece(planes, five ? 3 : 2, r, k);
        return Half(super, 0) * static_cast<float>(scales[block]) * static_cast<float>(q) -
               Half(super, 1) * static_cast<float>(scales[8 + block]);
      }
      case DType::kQ6_K: {
        const uint32_t word = Word(Piece(planes, 1, r, k), k % 64 / 32 * 2 + e / 16);
        const int q = nibble | static_cast<int>(word >> (8 * i + 2 * s) & 3) << 4;
        const auto scale = static_cast<int8_t>(Piece(planes, 2, r, k)[k % 256 / 16]);
        return Half(Piece(planes, 3, r, k), 0) * static_cast<float>(scale * (q - 32));
      }
      case DType::kF32:
        break;
    }
    return 0;
  }
  int High(const Planes& planes, uint32_t r, uint32_t k) const {
    const uint32_t e = k % 32, s = e % 16 / 4, i = e % 4;
    return static_cast<int>(
        Word(Piece(planes, 1, r, k), k % 128 / 32) >> (8 * i + s + (e < 16 ? 0 : 4)) & 1);
  }

  DType format_;
  uint32_t cols_;
  std::mt19937 random_;
  std::vector<DeviceArray> arrays_;
};

}  // namespace tandem::gpu
