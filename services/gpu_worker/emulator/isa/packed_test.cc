// Packed operations, dot products, mixed fused multiply-adds and matrices.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "services/gpu_worker/emulator/isa/numbers.h"
#include "services/gpu_worker/emulator/isa/testing.h"

namespace tandem::rdna {
namespace {

uint32_t Pair(float low, float high) {
  return FloatToHalf(low) | uint32_t{FloatToHalf(high)} << 16;
}

TEST(PackedTest, TakesHalvesAsOpSelSays) {
  TestWave wave;
  wave.SetAll(0, Pair(1, 2));
  wave.SetAll(1, Pair(10, 20));
  wave.SetAll(2, Pair(100, 200));
  ASSERT_FALSE(wave.Execute(R"(v_pk_mul_f16 v3, v0, v1
                               v_pk_mul_f16 v4, v0, v1 op_sel_hi:[1,0]
                               v_pk_add_f16 v5, v0, v1 neg_lo:[0,1] neg_hi:[1,0]
                               v_pk_fma_f16 v6, v0, v1, v2 op_sel:[1,0,0])")
                   .has_value());
  EXPECT_EQ(wave.V(3, 0), Pair(10, 40));
  EXPECT_EQ(wave.V(4, 0), Pair(10, 20));
  EXPECT_EQ(wave.V(5, 0), Pair(-9, 18));
  EXPECT_EQ(wave.V(6, 0), Pair(120, 240));
}

TEST(PackedTest, ClampsIntegers) {
  TestWave wave;
  wave.SetAll(0, 0x7fff0001);
  wave.SetAll(1, 0x00010002);
  ASSERT_FALSE(wave.Execute(R"(v_pk_add_i16 v2, v0, v1
                               v_pk_add_i16 v3, v0, v1 clamp)")
                   .has_value());
  EXPECT_EQ(wave.V(2, 0), 0x80000003u);
  EXPECT_EQ(wave.V(3, 0), 0x7fff0003u);
}

TEST(PackedTest, MultipliesBytesWithEitherSign) {
  TestWave wave;
  wave.SetAll(0, 0xff028001);  // -1 2 -128 1
  wave.SetAll(1, 0x02037f04);
  wave.SetAll(2, 1000);
  ASSERT_FALSE(wave.Execute(R"(v_dot4_i32_iu8 v3, v0, v1, v2 neg_lo:[1,1,0]
                               v_dot4_i32_iu8 v4, v0, v1, v2
                               v_dot4_u32_u8 v5, v0, v1, v2)")
                   .has_value());
  const int with_sign = -1 * 2 + 2 * 3 + -128 * 127 + 1 * 4 + 1000;
  const int without = 255 * 2 + 2 * 3 + 128 * 127 + 1 * 4 + 1000;
  EXPECT_EQ(static_cast<int>(wave.V(3, 0)), with_sign);
  EXPECT_EQ(static_cast<int>(wave.V(4, 0)), without);
  EXPECT_EQ(static_cast<int>(wave.V(5, 0)), without);
  wave.SetAll(2, 0x7fffffff);
  ASSERT_FALSE(wave.Execute(R"(v_dot4_i32_iu8 v3, v0, v1, v2 clamp)").has_value());
  EXPECT_EQ(wave.V(3, 0), 0x7fffffffu);
}

TEST(PackedTest, MultipliesPairsOfFloats) {
  TestWave wave;
  wave.SetAll(0, Pair(1.5f, -2));
  wave.SetAll(1, Pair(4, 8));
  wave.SetFloat(2, 0.25f);
  ASSERT_FALSE(wave.Execute(R"(v_dot2_f32_f16 v3, v0, v1, v2)").has_value());
  EXPECT_EQ(wave.Float(3), 1.5f * 4 - 2 * 8 + 0.25f);
}

TEST(PackedTest, MixesWidths) {
  TestWave wave;
  wave.SetAll(0, Pair(3, 5));
  wave.SetFloat(1, 0.5f);
  wave.SetFloat(2, 10);
  wave.SetAll(3, 0x12345678);
  ASSERT_FALSE(wave.Execute(R"(v_fma_mix_f32 v4, v0, v1, v2 op_sel:[1,0,0] op_sel_hi:[1,0,0]
                               v_fma_mixhi_f16 v3, -v0, v1, v2 op_sel_hi:[1,0,0])")
                   .has_value());
  EXPECT_EQ(wave.Float(4), 12.5f);
  EXPECT_EQ(wave.V(3, 0), 0x5678u | uint32_t{FloatToHalf(8.5f)} << 16);
}

constexpr int kSize = 16;
using Matrix = std::array<std::array<float, kSize>, kSize>;

Matrix Random(unsigned seed, int limit) {
  std::mt19937 engine(seed);
  Matrix matrix;
  for (auto& row : matrix) {
    for (float& number : row) {
      number =
          static_cast<float>(static_cast<int>(engine() % static_cast<unsigned>(2 * limit)) - limit);
    }
  }
  return matrix;
}

Matrix Product(const Matrix& a, const Matrix& b, const Matrix& c) {
  Matrix product = c;
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      for (int k = 0; k < kSize; ++k) product[row][column] += a[row][k] * b[k][column];
    }
  }
  return product;
}

// Puts `line` of a matrix, 16 numbers of `bits` bits, into registers of every lane that has it.
template <class Encode>
void PutOperand(TestWave& wave, uint32_t vgpr, const Matrix& matrix, bool by_column, int bits,
                Encode encode) {
  const int per_word = 32 / bits;
  for (int lane = 0; lane < wave.wave().lanes; ++lane) {
    for (int word = 0; word < kSize / per_word; ++word) {
      uint32_t value = 0;
      for (int part = 0; part < per_word; ++part) {
        const int k = word * per_word + part, line = lane % kSize;
        value |= encode(by_column ? matrix[k][line] : matrix[line][k]) << (part * bits);
      }
      wave.V(vgpr + static_cast<uint32_t>(word), lane) = value;
    }
  }
}

// Register r of lane l has column l % 16 of row r * (lanes / 16) + l / 16.
template <class Visit>
void VisitSums(const TestWave& wave, int lanes, Visit visit) {
  (void)wave;
  for (int lane = 0; lane < lanes; ++lane) {
    for (int word = 0; word < kSize * kSize / lanes; ++word) {
      visit(static_cast<uint32_t>(word), lane, word * (lanes / kSize) + lane / kSize, lane % kSize);
    }
  }
}

class MatrixTest : public testing::TestWithParam<int> {};

TEST_P(MatrixTest, MultipliesHalves) {
  TestWave wave(GetParam());
  const Matrix a = Random(1, 8), b = Random(2, 8), c = Random(3, 100), want = Product(a, b, c);
  const auto half = [](float value) { return uint32_t{FloatToHalf(value)}; };
  PutOperand(wave, 0, a, false, 16, half);
  PutOperand(wave, 8, b, true, 16, half);
  VisitSums(wave, GetParam(), [&](uint32_t word, int lane, int row, int column) {
    wave.V(16 + word, lane) = AsBits(c[row][column]);
    wave.V(40 + word, lane) = 0x11110000u | FloatToHalf(c[row][column]);
  });
  if (GetParam() == 32) {
    ASSERT_FALSE(wave.Execute(R"(v_wmma_f32_16x16x16_f16 v[24:31], v[0:7], v[8:15], v[16:23]
                                 v_wmma_f16_16x16x16_f16 v[40:47], v[0:7], v[8:15], v[40:47])")
                     .has_value());
  } else {
    ASSERT_FALSE(wave.Execute(R"(v_wmma_f32_16x16x16_f16 v[24:27], v[0:7], v[8:15], v[16:19]
                                 v_wmma_f16_16x16x16_f16 v[40:43], v[0:7], v[8:15], v[40:43])")
                     .has_value());
  }
  VisitSums(wave, GetParam(), [&](uint32_t word, int lane, int row, int column) {
    EXPECT_EQ(wave.Float(24 + word, lane), want[row][column]) << row << ", " << column;
    EXPECT_EQ(wave.V(40 + word, lane), 0x11110000u | FloatToHalf(want[row][column]));
  });
}

TEST_P(MatrixTest, MultipliesBytesAndNibbles) {
  TestWave wave(GetParam());
  const Matrix a = Random(4, 100), b = Random(5, 100), c = Random(6, 1000), want = Product(a, b, c),
               low_a = Random(7, 8), low_b = Random(8, 8), low_want = Product(low_a, low_b, c);
  const auto byte = [](float value) {
    return static_cast<uint32_t>(static_cast<int>(value)) & 0xff;
  };
  const auto nibble = [](float value) {
    return static_cast<uint32_t>(static_cast<int>(value)) & 15;
  };
  PutOperand(wave, 0, a, false, 8, byte);
  PutOperand(wave, 4, b, true, 8, byte);
  PutOperand(wave, 32, low_a, false, 4, nibble);
  PutOperand(wave, 34, low_b, true, 4, nibble);
  VisitSums(wave, GetParam(), [&](uint32_t word, int lane, int row, int column) {
    const auto bits = static_cast<uint32_t>(static_cast<int>(c[row][column]));
    wave.V(8 + word, lane) = bits;
    wave.V(40 + word, lane) = bits;
  });
  if (GetParam() == 32) {
    ASSERT_FALSE(
        wave.Execute(R"(v_wmma_i32_16x16x16_iu8 v[8:15], v[0:3], v[4:7], v[8:15] neg_lo:[1,1,0]
                        v_wmma_i32_16x16x16_iu4 v[40:47], v[32:33], v[34:35], v[40:47] neg_lo:[1,1,0])")
            .has_value());
  } else {
    ASSERT_FALSE(
        wave.Execute(R"(v_wmma_i32_16x16x16_iu8 v[8:11], v[0:3], v[4:7], v[8:11] neg_lo:[1,1,0]
                        v_wmma_i32_16x16x16_iu4 v[40:43], v[32:33], v[34:35], v[40:43] neg_lo:[1,1,0])")
            .has_value());
  }
  VisitSums(wave, GetParam(), [&](uint32_t word, int lane, int row, int column) {
    EXPECT_EQ(static_cast<int>(wave.V(8 + word, lane)), static_cast<int>(want[row][column]));
    EXPECT_EQ(static_cast<int>(wave.V(40 + word, lane)), static_cast<int>(low_want[row][column]));
  });
}

TEST_P(MatrixTest, FaultsIfTheUpperLanesDoNotRepeatAnOperand) {
  TestWave wave(GetParam());
  const Matrix a = Random(1, 8), b = Random(2, 8);
  const auto half = [](float value) { return uint32_t{FloatToHalf(value)}; };
  PutOperand(wave, 0, a, false, 16, half);
  PutOperand(wave, 8, b, true, 16, half);
  // The two halves of B have changed places in the upper lanes, as a kernel that takes the layout
  // of another chip would have them.
  for (int lane = kSize; lane < 2 * kSize; ++lane) {
    for (uint32_t word = 0; word < 4; ++word)
      std::swap(wave.V(8 + word, lane), wave.V(12 + word, lane));
  }
  const auto fault =
      GetParam() == 32
          ? wave.Execute(R"(v_wmma_f32_16x16x16_f16 v[24:31], v[0:7], v[8:15], v[16:23])")
          : wave.Execute(R"(v_wmma_f32_16x16x16_f16 v[24:27], v[0:7], v[8:15], v[16:19])");
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->what.find("of B is not a copy of lane"), std::string::npos) << fault->what;
}

INSTANTIATE_TEST_SUITE_P(Lanes, MatrixTest, testing::Values(32, 64));

}  // namespace
}  // namespace tandem::rdna
