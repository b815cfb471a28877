#include "services/common/tensor/quant.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "services/common/base/check.h"
#include "services/common/base/half.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little);

// One block taken apart.  q is centred: the zero point is already subtracted.
struct Block {
  uint16_t d = 0;          // f16
  int8_t scales[16] = {};  // q6_k
  int8_t q[256] = {};
};

template <typename T>
T Load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

template <typename T>
void Store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof(value));
}

uint32_t Byte(const std::byte* p, size_t i) { return static_cast<uint32_t>(p[i]); }

void Or(std::byte* p, size_t i, uint32_t bits) { p[i] |= static_cast<std::byte>(bits); }

struct Q8_0 {
  static constexpr uint32_t kElements = 32;
  static constexpr uint32_t kBytes = 34;

  static void LoadFile(const std::byte* p, Block& block) {
    block.d = Load<uint16_t>(p);
    std::memcpy(block.q, p + 2, kElements);
  }
  static void StoreFile(const Block& block, std::byte* p) {
    Store(p, block.d);
    std::memcpy(p + 2, block.q, kElements);
  }
  static void LoadPacked(const PackedRow& row, size_t b, Block& block) {
    std::memcpy(block.q, row.planes[0] + b * kElements, kElements);
    block.d = Load<uint16_t>(row.planes[1] + b * 2);
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t b) {
    std::memcpy(row.planes[0] + b * kElements, block.q, kElements);
    Store(row.planes[1] + b * 2, block.d);
  }
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) out[e] = d * static_cast<float>(block.q[e]);
  }
  static void Quantize(const float* x, Block& block);
};

struct Q4_0 {
  static constexpr uint32_t kElements = 32;
  static constexpr uint32_t kBytes = 18;

  static void LoadFile(const std::byte* p, Block& block) {
    block.d = Load<uint16_t>(p);
    for (uint32_t e = 0; e < 16; ++e) {
      block.q[e] = static_cast<int8_t>((Byte(p, 2 + e) & 15u) - 8);
      block.q[e + 16] = static_cast<int8_t>((Byte(p, 2 + e) >> 4) - 8);
    }
  }
  static void StoreFile(const Block& block, std::byte* p) {
    Store(p, block.d);
    std::memset(p + 2, 0, 16);
    for (uint32_t e = 0; e < kElements; ++e) {
      Or(p, 2 + e % 16, static_cast<uint32_t>(block.q[e] + 8) << (4 * (e / 16)));
    }
  }
  static void LoadPacked(const PackedRow& row, size_t b, Block& block) {
    const std::byte* nibbles = row.planes[0] + b * 16;
    for (uint32_t e = 0; e < kElements; ++e) {
      block.q[e] = static_cast<int8_t>(((Byte(nibbles, e / 2) >> (4 * (e % 2))) & 15u) - 8);
    }
    block.d = Load<uint16_t>(row.planes[1] + b * 2);
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t b) {
    std::byte* nibbles = row.planes[0] + b * 16;
    std::memset(nibbles, 0, 16);
    for (uint32_t e = 0; e < kElements; ++e) {
      Or(nibbles, e / 2, static_cast<uint32_t>(block.q[e] + 8) << (4 * (e % 2)));
    }
    Store(row.planes[1] + b * 2, block.d);
  }
  static void Dequantize(const Block& block, float* out) { Q8_0::Dequantize(block, out); }
  static void Quantize(const float* x, Block& block);
};

struct Q6_K {
  static constexpr uint32_t kElements = 256;
  static constexpr uint32_t kBytes = 210;

  // Where element e lies in a file block (see the header).
  struct Place {
    uint32_t low_byte, low_shift, high_byte, high_shift;
  };
  static Place PlaceOf(uint32_t e) {
    const uint32_t h = e / 128, g = e / 32 % 4, l = e % 32;
    return {64 * h + 32 * (g % 2) + l, 4 * (g / 2), 32 * h + l, 2 * g};
  }

  static void LoadFile(const std::byte* p, Block& block) {
    const std::byte* high = p + 128;
    for (uint32_t e = 0; e < kElements; ++e) {
      const Place at = PlaceOf(e);
      const uint32_t q = ((Byte(p, at.low_byte) >> at.low_shift) & 15u) |
                         (((Byte(high, at.high_byte) >> at.high_shift) & 3u) << 4);
      block.q[e] = static_cast<int8_t>(static_cast<int32_t>(q) - 32);
    }
    std::memcpy(block.scales, p + 192, 16);
    block.d = Load<uint16_t>(p + 208);
  }
  static void StoreFile(const Block& block, std::byte* p) {
    std::memset(p, 0, 192);
    for (uint32_t e = 0; e < kElements; ++e) {
      const Place at = PlaceOf(e);
      const auto q = static_cast<uint32_t>(block.q[e] + 32);
      Or(p, at.low_byte, (q & 15u) << at.low_shift);
      Or(p, 128 + at.high_byte, (q >> 4) << at.high_shift);
    }
    std::memcpy(p + 192, block.scales, 16);
    Store(p + 208, block.d);
  }
  static void LoadPacked(const PackedRow& row, size_t b, Block& block) {
    const std::byte* low = row.planes[0] + b * 128;
    const std::byte* high = row.planes[1] + b * 64;
    for (uint32_t e = 0; e < kElements; ++e) {
      const uint32_t q = ((Byte(low, e / 2) >> (4 * (e % 2))) & 15u) |
                         (((Byte(high, e / 4) >> (2 * (e % 4))) & 3u) << 4);
      block.q[e] = static_cast<int8_t>(static_cast<int32_t>(q) - 32);
    }
    std::memcpy(block.scales, row.planes[2] + b * 16, 16);
    block.d = Load<uint16_t>(row.planes[3] + b * 2);
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t b) {
    std::byte* low = row.planes[0] + b * 128;
    std::byte* high = row.planes[1] + b * 64;
    std::memset(low, 0, 128);
    std::memset(high, 0, 64);
    for (uint32_t e = 0; e < kElements; ++e) {
      const auto q = static_cast<uint32_t>(block.q[e] + 32);
      Or(low, e / 2, (q & 15u) << (4 * (e % 2)));
      Or(high, e / 4, (q >> 4) << (2 * (e % 4)));
    }
    std::memcpy(row.planes[2] + b * 16, block.scales, 16);
    Store(row.planes[3] + b * 2, block.d);
  }
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) {
      const float scale = d * static_cast<float>(block.scales[e / 16]);
      out[e] = scale * static_cast<float>(block.q[e]);
    }
  }
  static void Quantize(const float* x, Block& block);
};

int8_t RoundClamped(float value, int low, int high) {
  return static_cast<int8_t>(std::clamp<long>(std::lrint(value), low, high));
}

// The element of largest magnitude, with its sign.
float Extreme(const float* x, uint32_t n) {
  return *std::max_element(x, x + n, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

float Reciprocal(float value) { return value == 0.0f ? 0.0f : 1.0f / value; }

void Q8_0::Quantize(const float* x, Block& block) {
  block.d = FloatToHalf(std::fabs(Extreme(x, kElements)) / 127.0f);
  const float inverse = Reciprocal(HalfToFloat(block.d));
  for (uint32_t e = 0; e < kElements; ++e) block.q[e] = RoundClamped(x[e] * inverse, -127, 127);
}

// The extreme maps to -8, the end of the range that has no opposite.
void Q4_0::Quantize(const float* x, Block& block) {
  block.d = FloatToHalf(Extreme(x, kElements) / -8.0f);
  const float inverse = Reciprocal(HalfToFloat(block.d));
  for (uint32_t e = 0; e < kElements; ++e) block.q[e] = RoundClamped(x[e] * inverse, -8, 7);
}

// Each group of 16 has its extreme mapped to -32; group scales are multiples of d.
void Q6_K::Quantize(const float* x, Block& block) {
  float scales[16];
  for (uint32_t g = 0; g < 16; ++g) scales[g] = Extreme(x + 16 * g, 16) / -32.0f;
  block.d = FloatToHalf(Extreme(scales, 16) / -128.0f);
  const float d = HalfToFloat(block.d);
  for (uint32_t g = 0; g < 16; ++g) {
    block.scales[g] = RoundClamped(scales[g] * Reciprocal(d), -128, 127);
    const float inverse = Reciprocal(d * static_cast<float>(block.scales[g]));
    for (uint32_t e = 16 * g; e < 16 * (g + 1); ++e) {
      block.q[e] = RoundClamped(x[e] * inverse, -32, 31);
    }
  }
}

// Calls `f` with the codec of a block format.
template <typename F>
void WithCodec(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kQ8_0:
      return f(Q8_0{});
    case DType::kQ4_0:
      return f(Q4_0{});
    case DType::kQ6_K:
      return f(Q6_K{});
    default:
      TANDEM_CHECK(false);
  }
}

bool IsBlockFormat(DType dtype) { return Traits(dtype).block_elements > 1; }

void DequantizePlain(DType dtype, const std::byte* row, std::span<float> out) {
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), row, out.size_bytes());
    return;
  }
  for (size_t e = 0; e < out.size(); ++e) {
    const auto bits = Load<uint16_t>(row + 2 * e);
    out[e] = dtype == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
  }
}

void QuantizePlain(DType dtype, std::span<const float> values, std::byte* row) {
  if (dtype == DType::kF32) {
    std::memcpy(row, values.data(), values.size_bytes());
    return;
  }
  for (size_t e = 0; e < values.size(); ++e) {
    Store(row + 2 * e, dtype == DType::kF16 ? FloatToHalf(values[e]) : FloatToBf16(values[e]));
  }
}

}  // namespace

void DequantizeFileRow(DType dtype, std::span<const std::byte> row, std::span<float> out) {
  TANDEM_CHECK(row.size() >= RowBytes(dtype, out.size()));
  if (!IsBlockFormat(dtype)) return DequantizePlain(dtype, row.data(), out);
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < out.size() / Codec::kElements; ++b) {
      Codec::LoadFile(row.data() + b * Codec::kBytes, block);
      Codec::Dequantize(block, out.data() + b * Codec::kElements);
    }
  });
}

void DequantizePackedRow(DType dtype, const PackedRow& row, std::span<float> out) {
  TANDEM_CHECK(out.size() % Traits(dtype).block_elements == 0);
  if (!IsBlockFormat(dtype)) return DequantizePlain(dtype, row.planes[0], out);
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < out.size() / Codec::kElements; ++b) {
      Codec::LoadPacked(row, b, block);
      Codec::Dequantize(block, out.data() + b * Codec::kElements);
    }
  });
}

void QuantizeFileRow(DType dtype, std::span<const float> values, std::span<std::byte> row) {
  TANDEM_CHECK(row.size() >= RowBytes(dtype, values.size()));
  if (!IsBlockFormat(dtype)) return QuantizePlain(dtype, values, row.data());
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < values.size() / Codec::kElements; ++b) {
      Codec::Quantize(values.data() + b * Codec::kElements, block);
      Codec::StoreFile(block, row.data() + b * Codec::kBytes);
    }
  });
}

void QuantizePackedRow(DType dtype, std::span<const float> values, const MutablePackedRow& row) {
  TANDEM_CHECK(values.size() % Traits(dtype).block_elements == 0);
  if (!IsBlockFormat(dtype)) return QuantizePlain(dtype, values, row.planes[0]);
  WithCodec(dtype, [&]<typename Codec>(Codec) {
    Block block;
    for (size_t b = 0; b < values.size() / Codec::kElements; ++b) {
      Codec::Quantize(values.data() + b * Codec::kElements, block);
      Codec::StorePacked(block, row, b);
    }
  });
}

}  // namespace tandem
