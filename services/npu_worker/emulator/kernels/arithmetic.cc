// Compiled with -march flags of its own under the name TANDEM_ISA: calls no inline function of a
// library, which the linker could otherwise take from here for processors that lack the
// instructions.
#include "services/npu_worker/emulator/kernels/arithmetic.h"

#define TANDEM_CONCAT_ISA_INNER(a, b) a##b
#define TANDEM_CONCAT_ISA(a, b) TANDEM_CONCAT_ISA_INNER(a, b)
#define TANDEM_STRING_INNER(a) #a
#define TANDEM_STRING(a) TANDEM_STRING_INNER(a)

namespace tandem::npu::emulator {
namespace {

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef float Vec8 __attribute__((vector_size(32)));
typedef float Vec4 __attribute__((vector_size(16)));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));

enum : uint32_t {  // tandem::DType
#include "services/common/tensor/dtype_numbers.inc"
};

inline void Load(Vec& out, const float* in) { __builtin_memcpy(&out, in, sizeof(out)); }
inline void Store(const Vec& in, float* out) { __builtin_memcpy(out, &in, sizeof(in)); }

inline float BitsToFloat(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// Exponent and mantissa move into place; the product by 2^112 corrects the bias and normalises.
inline float Half(uint16_t half) {
  const uint32_t magnitude = half & 0x7FFFu;
  const float scaled = BitsToFloat(magnitude << 13) * 0x1p112f;
  const uint32_t special = 0x7F800000u | ((magnitude & 0x3FFu) << 13);
  const float value = magnitude >= 0x7C00u ? BitsToFloat(special) : scaled;
  return (half & 0x8000u) != 0 ? -value : value;
}

inline float HalfAt(const uint8_t* bytes, size_t index) {
  uint16_t half;
  __builtin_memcpy(&half, bytes + 2 * index, sizeof(half));
  return Half(half);
}

void HalfToFloat(const uint16_t* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = Half(in[i]);
}

// Lanes 0-3 of the sum of a vector's four quarters.
inline Vec4 Fold(const Vec& v) {
  const Vec8 half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(half, half, 0, 1, 2, 3) +
         __builtin_shufflevector(half, half, 4, 5, 6, 7);
}

// out[j] = sum of the lanes of vector j.
inline void SumLanes(const Vec& v0, const Vec& v1, const Vec& v2, const Vec& v3, float* out) {
  const Vec4 a = Fold(v0), b = Fold(v1), c = Fold(v2), d = Fold(v3);
  const Vec4 ab =
      __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
  const Vec4 cd =
      __builtin_shufflevector(c, d, 0, 1, 4, 5) + __builtin_shufflevector(c, d, 2, 3, 6, 7);
  const Vec4 sums =
      __builtin_shufflevector(ab, cd, 0, 2, 4, 6) + __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
  __builtin_memcpy(out, &sums, sizeof(sums));
}

void DotFour(const float* x, const float* rows, size_t n, float* out) {
  Vec sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
  for (size_t i = 0; i < n; i += kLanes) {
    Vec a, b0, b1, b2, b3;
    Load(a, x + i);
    Load(b0, rows + i);
    Load(b1, rows + n + i);
    Load(b2, rows + 2 * n + i);
    Load(b3, rows + 3 * n + i);
    sum0 += a * b0;
    sum1 += a * b1;
    sum2 += a * b2;
    sum3 += a * b3;
  }
  SumLanes(sum0, sum1, sum2, sum3, out);
}

// exp(x) for x <= 0, zero below -87; relative error under 2e-7 (Cephes' expf: range reduction by
// ln 2 in two parts, degree 5 polynomial).
inline Vec Exp(Vec x) {
  const Vec rounder = Vec{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const IntVec underflow = x < Vec{} - 87.0f;
  const Vec shifted = x * 1.44269504088896341f + rounder;
  const Vec n = shifted - rounder;
  const Vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  Vec p = Vec{} + 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + (r + 1.0f);
  typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));
  const Bits power = (((Bits)shifted) + 127u) << 23;  // the integer is in the low bits
  const Vec result = p * (Vec)power;
  return (Vec)((IntVec)result & ~underflow);
}

// accumulator = accumulator * factor + sum_t p[t] v[t], for kVectors vectors of a row of v.  Each
// element goes through the same operations whatever kVectors is.
template <int kVectors>
inline void Accumulate(const float* p, const float* v, size_t head_dim, int first, int last,
                       float factor, float* accumulator) {
  Vec sums[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    Load(sums[i], accumulator + i * kLanes);
    sums[i] *= factor;
  }
  for (int t = first; t <= last; ++t) {
    for (int i = 0; i < kVectors; ++i) {
      Vec value;
      Load(value, v + t * head_dim + i * kLanes);
      sums[i] += value * p[t];
    }
  }
  for (int i = 0; i < kVectors; ++i) Store(sums[i], accumulator + i * kLanes);
}

void AttendTile(const float* q, const float* k, const float* v, size_t head_dim, int first,
                int last, AttentionState* state) {
  alignas(64) float scores[kTilePositions];
  for (int t = 0; t < kTilePositions; t += 4) DotFour(q, k + t * head_dim, head_dim, scores + t);
  float max = state->max;
  for (int t = first; t <= last; ++t) max = scores[t] > max ? scores[t] : max;
  const float factor = Exp(Vec{} + (state->max - max))[0];
  Vec s;
  Load(s, scores);
  alignas(64) float p[kTilePositions];
  Store(Exp(s - max), p);
  float sum = state->sum * factor;
  for (int t = first; t <= last; ++t) sum += p[t];
  size_t d = 0;
  for (; d + 4 * kLanes <= head_dim; d += 4 * kLanes) {
    Accumulate<4>(p, v + d, head_dim, first, last, factor, state->accumulator + d);
  }
  for (; d < head_dim; d += kLanes) {
    Accumulate<1>(p, v + d, head_dim, first, last, factor, state->accumulator + d);
  }
  state->max = max;
  state->sum = sum;
}

// Piece i of a row in a plane of 16-byte pieces; 32 rows' pieces lie side by side.
inline const uint8_t* PieceAt(const uint8_t* first, size_t i) { return first + i * (32 * 16); }

// f16 of the 32 elements from i on, eight of them a piece.
inline float ScaleAt(const uint8_t* first, size_t i) {
  return HalfAt(PieceAt(first, i / 256), i % 256 / 32);
}

inline size_t Least(size_t a, size_t b) { return a < b ? a : b; }

void DequantizeQ6K(const uint8_t* const* planes, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 32) {
    const uint8_t* nibbles = PieceAt(planes[0], i / 32);
    const uint8_t* pairs = PieceAt(planes[1], i / 64) + i % 64 / 4;
    const uint8_t* scales = PieceAt(planes[2], i / 256) + i % 256 / 16;
    const float d = HalfAt(planes[3] + i / 256 * (32 * 2), 0);
    for (size_t j = 0; j < 32; ++j) {
      const int low = (nibbles[j % 16] >> (4 * (j / 16))) & 15;
      const int high = (pairs[4 * (j / 16) + j % 4] >> (2 * (j % 16 / 4))) & 3;
      const float scale = d * static_cast<float>(static_cast<int8_t>(scales[j / 16]));
      out[i + j] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

// Nibble of element j < 32 of a piece.
inline int NibbleAt(const uint8_t* piece, size_t j) {
  return (piece[j % 16] >> (4 * (j / 16))) & 15;
}
// Bit 4 of element j < 32, in place; `bits` as one 32-bit word.
inline int FifthBitAt(const uint8_t* bits, size_t j) { return ((bits[j % 4] >> (j / 4)) & 1) << 4; }

void DequantizeIq4Nl(const uint8_t* const* planes, size_t n, float* out) {
  static constexpr float kValues[16] = {
#include "services/common/tensor/iq4_nl_values.inc"
  };
  for (size_t i = 0; i < n; i += 32) {
    const float d = ScaleAt(planes[1], i);
    const uint8_t* q = PieceAt(planes[0], i / 32);
    for (size_t j = 0; j < 32; ++j) out[i + j] = d * kValues[NibbleAt(q, j)];
  }
}

void DequantizeQ5_0(const uint8_t* const* planes, size_t n, float* out) {
  for (size_t i = 0; i < n; i += 32) {
    const float d = ScaleAt(planes[2], i);
    const uint8_t* q = PieceAt(planes[0], i / 32);
    const uint8_t* bits = PieceAt(planes[1], i / 128) + i % 128 / 8;
    for (size_t j = 0; j < 32; ++j) {
      out[i + j] = d * static_cast<float>((NibbleAt(q, j) | FifthBitAt(bits, j)) - 16);
    }
  }
}

// q4_k without bits, q5_k with.
void DequantizeScaleAndMin(const uint8_t* const* planes, bool has_bits, size_t n, float* out) {
  const uint8_t* const* tail = planes + (has_bits ? 2 : 1);
  for (size_t i = 0; i < n; i += 32) {
    const uint8_t* q = PieceAt(planes[0], i / 32);
    const uint8_t* scales = PieceAt(tail[0], i / 256) + i % 256 / 32;
    const uint8_t* supers = tail[1] + i / 256 * (32 * 4);
    const float scale = HalfAt(supers, 0) * static_cast<float>(scales[0]);
    const float min = HalfAt(supers, 1) * static_cast<float>(scales[8]);
    for (size_t j = 0; j < 32; ++j) {
      int code = NibbleAt(q, j);
      if (has_bits) code |= FifthBitAt(PieceAt(planes[1], i / 128) + i % 128 / 8, j);
      out[i + j] = scale * static_cast<float>(code) - min;
    }
  }
}

void Dequantize(uint32_t dtype, const uint8_t* const* planes, size_t n, float* out) {
  const uint8_t* first = planes[0];
  switch (dtype) {
    case kF32:
      for (size_t i = 0; i < n; i += 4) {
        __builtin_memcpy(out + i, PieceAt(first, i / 4), Least(4, n - i) * sizeof(float));
      }
      return;
    case kF16:
      for (size_t i = 0; i < n; i += 8) {
        const uint8_t* piece = PieceAt(first, i / 8);
        for (size_t j = 0; j < Least(8, n - i); ++j) out[i + j] = HalfAt(piece, j);
      }
      return;
    case kBf16:
      for (size_t i = 0; i < n; i += 8) {
        uint16_t bits[8];
        __builtin_memcpy(bits, PieceAt(first, i / 8), sizeof(bits));
        for (size_t j = 0; j < Least(8, n - i); ++j) {
          out[i + j] = BitsToFloat(uint32_t{bits[j]} << 16);
        }
      }
      return;
    case kQ8_0:
      for (size_t i = 0; i < n; i += 16) {
        const float d = ScaleAt(planes[1], i);
        const uint8_t* q = PieceAt(first, i / 16);
        for (size_t j = 0; j < 16; ++j) {
          out[i + j] = d * static_cast<float>(static_cast<int8_t>(q[j]));
        }
      }
      return;
    case kQ4_0:
      for (size_t i = 0; i < n; i += 32) {
        const float d = ScaleAt(planes[1], i);
        const uint8_t* q = PieceAt(first, i / 32);
        for (size_t j = 0; j < 16; ++j) {
          // Signed nibbles: the upper half of a byte, moved down with its sign.
          out[i + j] = d * static_cast<float>(static_cast<int8_t>(q[j] << 4) >> 4);
          out[i + 16 + j] = d * static_cast<float>(static_cast<int8_t>(q[j]) >> 4);
        }
      }
      return;
    case kQ6_K:
      DequantizeQ6K(planes, n, out);
      return;
    case kQ4_K:
    case kQ5_K:
      DequantizeScaleAndMin(planes, dtype == kQ5_K, n, out);
      return;
    case kQ5_0:
      DequantizeQ5_0(planes, n, out);
      return;
    case kIq4Nl:
      DequantizeIq4Nl(planes, n, out);
      return;
    default:
      return;
  }
}

}  // namespace

extern const Arithmetic TANDEM_CONCAT_ISA(kArithmetic_, TANDEM_ISA);
const Arithmetic TANDEM_CONCAT_ISA(kArithmetic_, TANDEM_ISA) = {
    TANDEM_STRING(TANDEM_ISA), HalfToFloat, AttendTile, DotFour, Dequantize};

}  // namespace tandem::npu::emulator
