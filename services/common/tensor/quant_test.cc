#include "services/common/tensor/quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

#include "services/common/base/half.h"

namespace tandem {
namespace {

std::vector<float> RandomValues(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> RandomBytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// One packed row in memory of its own, its pieces a tile's stride apart, the rest a guard.
struct Planes {
  static constexpr size_t kPlaneBytes = 128 << 10;
  std::vector<std::byte> bytes = std::vector<std::byte>(kMaxPlanes * kPlaneBytes, std::byte{0xA5});
  MutablePackedRow row() {
    MutablePackedRow result;
    for (size_t p = 0; p < kMaxPlanes; ++p) result.planes[p] = bytes.data() + p * kPlaneBytes;
    return result;
  }
};

TEST(QuantTest, DequantizesBlocksAsTheFileFormatSaysElementByElement) {
  // q8_0: d = 0.5, q[e] = e - 16.
  std::vector<std::byte> q8(34);
  const uint16_t half = FloatToHalf(0.5f);
  std::memcpy(q8.data(), &half, 2);
  for (int e = 0; e < 32; ++e) q8[2 + e] = static_cast<std::byte>(e - 16);
  std::vector<float> out(32);
  DequantizeFileRow(DType::kQ8_0, q8, out);
  for (int e = 0; e < 32; ++e) EXPECT_EQ(out[e], 0.5f * (e - 16));

  // q4_0: byte j carries elements j and j + 16.
  std::vector<std::byte> q4(18);
  std::memcpy(q4.data(), &half, 2);
  for (int j = 0; j < 16; ++j) q4[2 + j] = static_cast<std::byte>(j | ((15 - j) << 4));
  DequantizeFileRow(DType::kQ4_0, q4, out);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(out[j], 0.5f * (j - 8));
    EXPECT_EQ(out[j + 16], 0.5f * (7 - j));
  }
}

// Transcribed from the definition of block_q6_K's dequantisation: four elements 32 apart share a
// byte of high bits.
TEST(QuantTest, DequantizesQ6KAsTheFileFormatSays) {
  std::vector<std::byte> row = RandomBytes(210, 3);
  const uint16_t d_bits = FloatToHalf(0.25f);
  std::memcpy(row.data() + 208, &d_bits, 2);
  std::vector<float> expected(256);
  const auto* low = reinterpret_cast<const uint8_t*>(row.data());
  const auto* high = low + 128;
  const auto* scales = reinterpret_cast<const int8_t*>(low + 192);
  float* y = expected.data();
  for (int half = 0; half < 2; ++half, y += 128, low += 64, high += 32, scales += 8) {
    for (int l = 0; l < 32; ++l) {
      const int is = l / 16;
      const int q1 = ((low[l] & 15) | ((high[l] & 3) << 4)) - 32;
      const int q2 = ((low[l + 32] & 15) | (((high[l] >> 2) & 3) << 4)) - 32;
      const int q3 = ((low[l] >> 4) | (((high[l] >> 4) & 3) << 4)) - 32;
      const int q4 = ((low[l + 32] >> 4) | (((high[l] >> 6) & 3) << 4)) - 32;
      y[l] = 0.25f * scales[is] * q1;
      y[l + 32] = 0.25f * scales[is + 2] * q2;
      y[l + 64] = 0.25f * scales[is + 4] * q3;
      y[l + 96] = 0.25f * scales[is + 6] * q4;
    }
  }
  std::vector<float> out(256);
  DequantizeFileRow(DType::kQ6_K, row, out);
  EXPECT_EQ(out, expected);
}

// The next four likewise, from block_iq4_nl, block_q5_0, block_q4_K and block_q5_K.
void SetHalf(std::vector<std::byte>& row, size_t at, float value) {
  const uint16_t bits = FloatToHalf(value);
  std::memcpy(row.data() + at, &bits, sizeof(bits));
}

TEST(QuantTest, DequantizesIq4NlAsTheFileFormatSays) {
  constexpr int kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
  std::vector<std::byte> row = RandomBytes(18, 21);
  SetHalf(row, 0, -0.3f);
  const float d = HalfToFloat(FloatToHalf(-0.3f));
  std::vector<float> expected(32), out(32);
  const auto* qs = reinterpret_cast<const uint8_t*>(row.data()) + 2;
  for (int j = 0; j < 16; ++j) {
    expected[j] = d * kValues[qs[j] & 0xf];
    expected[j + 16] = d * kValues[qs[j] >> 4];
  }
  DequantizeFileRow(DType::kIq4Nl, row, out);
  EXPECT_EQ(out, expected);
}

TEST(QuantTest, DequantizesQ5_0AsTheFileFormatSays) {
  std::vector<std::byte> row = RandomBytes(22, 22);
  SetHalf(row, 0, 0.7f);
  const float d = HalfToFloat(FloatToHalf(0.7f));
  std::vector<float> expected(32), out(32);
  const auto* bytes = reinterpret_cast<const uint8_t*>(row.data());
  uint32_t qh;
  std::memcpy(&qh, bytes + 2, sizeof(qh));
  const uint8_t* qs = bytes + 6;
  for (int j = 0; j < 16; ++j) {
    const uint8_t xh_0 = ((qh >> (j + 0)) << 4) & 0x10;
    const uint8_t xh_1 = ((qh >> (j + 12))) & 0x10;
    expected[j] = static_cast<float>(((qs[j] & 0x0F) | xh_0) - 16) * d;
    expected[j + 16] = static_cast<float>(((qs[j] >> 4) | xh_1) - 16) * d;
  }
  DequantizeFileRow(DType::kQ5_0, row, out);
  EXPECT_EQ(out, expected);
}

void ScaleAndMin(int j, const uint8_t* q, uint8_t* d, uint8_t* m) {
  if (j < 4) {
    *d = q[j] & 63;
    *m = q[j + 4] & 63;
  } else {
    *d = (q[j + 4] & 0xF) | ((q[j - 4] >> 6) << 4);
    *m = (q[j + 4] >> 4) | ((q[j - 0] >> 6) << 4);
  }
}

TEST(QuantTest, DequantizesQ4KAndQ5KAsTheFileFormatSays) {
  for (const DType dtype : {DType::kQ4_K, DType::kQ5_K}) {
    const bool five = dtype == DType::kQ5_K;
    for (uint32_t seed = 0; seed < 20; ++seed) {
      std::vector<std::byte> row = RandomBytes(Traits(dtype).block_bytes, seed);
      SetHalf(row, 0, 0.013f);
      SetHalf(row, 2, 0.37f);
      const float d = HalfToFloat(FloatToHalf(0.013f)), min = HalfToFloat(FloatToHalf(0.37f));
      const auto* scales = reinterpret_cast<const uint8_t*>(row.data()) + 4;
      const uint8_t* qh = scales + 12;
      const uint8_t* ql = scales + (five ? 44 : 12);
      std::vector<float> expected, out(256);
      int is = 0;
      uint8_t u1 = 1, u2 = 2;
      for (int j = 0; j < 256; j += 64) {
        uint8_t sc, m;
        ScaleAndMin(is + 0, scales, &sc, &m);
        const float d1 = d * sc, m1 = min * m;
        ScaleAndMin(is + 1, scales, &sc, &m);
        const float d2 = d * sc, m2 = min * m;
        for (int l = 0; l < 32; ++l) {
          const int q = (ql[l] & 0xF) + (five && (qh[l] & u1) ? 16 : 0);
          expected.push_back(d1 * static_cast<float>(q) - m1);
        }
        for (int l = 0; l < 32; ++l) {
          const int q = (ql[l] >> 4) + (five && (qh[l] & u2) ? 16 : 0);
          expected.push_back(d2 * static_cast<float>(q) - m2);
        }
        ql += 32;
        is += 2;
        u1 = static_cast<uint8_t>(u1 << 2);
        u2 = static_cast<uint8_t>(u2 << 2);
      }
      DequantizeFileRow(dtype, row, out);
      ASSERT_EQ(out, expected) << Traits(dtype).name << " seed " << seed;
    }
  }
}

TEST(QuantTest, PackedNibblesAreSignedAndHalfABlockApart) {
  std::vector<float> values(64);
  for (int e = 0; e < 64; ++e) values[e] = static_cast<float>(e % 16 - 8);  // extreme -8: d = 1
  values[16] = 3.0f;
  Planes planes;
  QuantizePackedRow(DType::kQ4_0, values, planes.row());
  constexpr size_t kStride = 512;
  for (int i = 0; i < 16; ++i) {
    const int upper = i == 0 ? 3 : i - 8;
    EXPECT_EQ(planes.bytes[i], static_cast<std::byte>(((i - 8) & 15) | (upper & 15) << 4));
    EXPECT_EQ(planes.bytes[kStride + i], static_cast<std::byte>(((i - 8) & 15) * 17));
  }
  EXPECT_EQ(planes.bytes[16], std::byte{0xA5}) << "written past the piece";
  EXPECT_EQ(planes.bytes[kStride + 16], std::byte{0xA5});
  const std::byte* scales = planes.bytes.data() + Planes::kPlaneBytes;
  for (int i = 0; i < 17; ++i) {  // f16 1.0 = 0x3C00 twice, then zeros to the piece's end
    EXPECT_EQ(scales[i], std::byte(i == 16 ? 0xA5 : i == 1 || i == 3 ? 0x3C : 0x00)) << i;
  }
}

// Packed files and manifests hold these numbers, so a format keeps its own.
TEST(QuantTest, AFormatKeepsItsNumber) {
  constexpr std::string_view kNames[] = {"f32",  "f16",  "bf16", "q8_0", "q4_0",
                                         "q6_k", "q4_k", "q5_k", "q5_0", "iq4_nl"};
  for (uint32_t i = 0; i < std::size(kNames); ++i) {
    EXPECT_EQ(Traits(static_cast<DType>(i)).name, kNames[i]) << i;
  }
}

TEST(QuantTest, RepackingChangesNoNumberWhateverTheBits) {
  for (const DType dtype : AllDTypes()) {
    constexpr size_t kElements = 768;
    const std::vector<std::byte> row = RandomBytes(RowBytes(dtype, kElements), 7);
    std::vector<float> from_file(kElements), from_planes(kElements);
    DequantizeFileRow(dtype, row, from_file);
    Planes planes;
    RepackRow(dtype, row, kElements, planes.row());
    DequantizePackedRow(dtype, planes.row(), from_planes);
    // Compared as bits: random scales hold infinities and NaNs.
    EXPECT_EQ(std::memcmp(from_file.data(), from_planes.data(), kElements * sizeof(float)), 0)
        << Traits(dtype).name;
  }
}

TEST(QuantTest, RepackingByElementGivesTheSameBytes) {
  for (const DType dtype : AllDTypes()) {
    if (Traits(dtype).block_elements == 1) continue;
    constexpr size_t kElements = 1024;  // blocks of 32 leave the last piece partly empty
    const size_t num_elements = kElements - (Traits(dtype).block_elements == 32 ? 96 : 0);
    const std::vector<std::byte> row = RandomBytes(RowBytes(dtype, num_elements), 13);
    Planes fast, slow;
    RepackRow(dtype, row, num_elements, fast.row());
    RepackRowByElement(dtype, row, num_elements, slow.row());
    EXPECT_TRUE(fast.bytes == slow.bytes) << Traits(dtype).name;
  }
}

TEST(QuantTest, BothLayoutsQuantizeAlike) {
  for (const DType dtype : AllDTypes()) {
    constexpr size_t kElements = 512;
    const std::vector<float> values = RandomValues(kElements, 11);
    std::vector<std::byte> row(RowBytes(dtype, kElements));
    std::vector<float> from_file(kElements), from_planes(kElements);
    QuantizeFileRow(dtype, values, row);
    DequantizeFileRow(dtype, row, from_file);
    Planes planes;
    QuantizePackedRow(dtype, values, planes.row());
    DequantizePackedRow(dtype, planes.row(), from_planes);
    EXPECT_EQ(from_file, from_planes) << Traits(dtype).name;
  }
}

// Half a step of the block's scale, the scale itself being rounded to float16 (2^-11), plus, at
// the end of the range that is one code short, a whole step.
TEST(QuantTest, RoundingErrorIsWithinTheStepOfTheBlock) {
  struct Case {
    DType dtype;
    uint32_t group;
    float levels;
    float steps;
  };
  for (const Case& c : {Case{DType::kQ8_0, 32, 127.0f, 0.5f}, Case{DType::kQ4_0, 32, 8.0f, 1.0f},
                        Case{DType::kQ5_0, 32, 16.0f, 1.0f}, Case{DType::kQ6_K, 16, 32.0f, 1.0f},
                        // From the table's end at 113 to 127; its widest gap is 24.
                        Case{DType::kIq4Nl, 32, 127.0f, 14.0f}}) {
    constexpr size_t kElements = 2560;
    const std::vector<float> values = RandomValues(kElements, 13);
    std::vector<std::byte> row(RowBytes(c.dtype, kElements));
    std::vector<float> out(kElements);
    QuantizeFileRow(c.dtype, values, row);
    DequantizeFileRow(c.dtype, row, out);
    for (size_t g = 0; g < kElements; g += c.group) {
      float extreme = 0.0f;
      for (size_t e = g; e < g + c.group; ++e) extreme = std::max(extreme, std::fabs(values[e]));
      float bound = extreme / c.levels * c.steps + extreme * 0x1p-11f * 2.0f;
      if (c.dtype == DType::kQ6_K) {
        // The group's scale is a multiple of d: at most half a multiple off, 32 codes away.
        float block_extreme = 0.0f;
        for (size_t e = g / 256 * 256; e < g / 256 * 256 + 256; ++e) {
          block_extreme = std::max(block_extreme, std::fabs(values[e]));
        }
        bound += 32.0f * 0.5f * block_extreme / (32.0f * 128.0f);
      }
      for (size_t e = g; e < g + c.group; ++e) {
        ASSERT_LE(std::fabs(out[e] - values[e]), bound)
            << Traits(c.dtype).name << " element " << e << " value " << values[e];
      }
    }
  }
}

// With step = range / levels of a group of 32, d and dmin the largest step and min over 63: half
// the step as rounded, the end of the range by levels times half a d, the min by half a dmin; f16
// roundings of 2^-11 of what they scale.
TEST(QuantTest, RoundingErrorWithMinimaIsWithinTheStep) {
  for (const auto& [dtype, levels] : {std::pair{DType::kQ4_K, 15.0f}, {DType::kQ5_K, 31.0f}}) {
    constexpr size_t kElements = 2560;
    const std::vector<float> values = RandomValues(kElements, 13);
    std::vector<std::byte> row(RowBytes(dtype, kElements));
    std::vector<float> out(kElements);
    QuantizeFileRow(dtype, values, row);
    DequantizeFileRow(dtype, row, out);
    for (size_t b = 0; b < kElements; b += 256) {
      float ranges[8], most_range = 0.0f, most_min = 0.0f;
      for (size_t r = 0; r < 8; ++r) {
        const auto* first = values.data() + b + 32 * r;
        const auto [low, high] = std::minmax_element(first, first + 32);
        ranges[r] = std::max(*high, 0.0f) - std::min(*low, 0.0f);
        most_range = std::max(most_range, ranges[r]);
        most_min = std::max(most_min, -*low);
      }
      const float d = most_range / levels / 63.0f, dmin = most_min / 63.0f;
      for (size_t e = b; e < b + 256; ++e) {
        const float range = ranges[(e - b) / 32];
        const float bound = 0.5f * range / levels + (0.5f * levels + 0.25f) * d + 0.5f * dmin +
                            (most_range + most_min) * 0x1p-10f;
        ASSERT_LE(std::fabs(out[e] - values[e]), bound) << Traits(dtype).name << " element " << e;
      }
    }
  }
}

TEST(QuantTest, RowsOfZerosStayZeros) {
  for (const DType dtype : AllDTypes()) {
    const std::vector<float> zeros(256, 0.0f);
    std::vector<std::byte> row(RowBytes(dtype, 256), std::byte{0xFF});
    QuantizeFileRow(dtype, zeros, row);
    std::vector<float> out(256, 1.0f);
    DequantizeFileRow(dtype, row, out);
    EXPECT_EQ(out, zeros) << Traits(dtype).name;
  }
}

}  // namespace
}  // namespace tandem
