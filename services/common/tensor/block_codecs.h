// Block formats taken apart, element by element: the plain definition that fast paths are tested
// against.  Included by quant.cc and quantize.cc alone.
//
// A codec knows a block of its format in a file (LoadFile, StoreFile) and in a packed row
// (LoadPacked; StorePacked, which wants it zero), its values (Dequantize), and how values are
// rounded (Quantize, in quantize.cc).
#pragma once

#include <cstdint>
#include <cstring>

#include "services/common/base/check.h"
#include "services/common/base/half.h"
#include "services/common/tensor/iq4_nl.h"
#include "services/common/tensor/packed_fields.h"

namespace tandem::codecs {

// One block: codes as in the file, before a zero point is subtracted (q8_0: int8 as its bits).
struct Block {
  uint16_t d = 0;           // f16
  uint16_t dmin = 0;        // f16; q4_k, q5_k
  uint8_t scales[16] = {};  // q6_k: int8 as its bits
  uint8_t mins[8] = {};     // q4_k, q5_k
  uint8_t q[256] = {};
};

// Codes of four bits, the first 16 of a block in the low halves of 16 bytes.
inline void LoadHalfBytes(const std::byte* p, uint8_t* q) { LoadNibbles(p, 0, q); }
inline void StoreHalfBytes(const uint8_t* q, std::byte* p) {
  std::memset(p, 0, 16);
  StoreNibbles(q, 0, p);
}

struct Q8_0 {
  static constexpr DType kDType = DType::kQ8_0;
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
  static void LoadPacked(const PackedRow& row, size_t e, Block& block) {
    std::memcpy(block.q, At(kDType, row, 0, e), 16);
    std::memcpy(block.q + 16, At(kDType, row, 0, e + 16), 16);
    block.d = Load<uint16_t>(At(kDType, row, 1, e));
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t e) {
    std::memcpy(At(kDType, row, 0, e), block.q, 16);
    std::memcpy(At(kDType, row, 0, e + 16), block.q + 16, 16);
    Store(At(kDType, row, 1, e), block.d);
  }
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) {
      out[e] = d * static_cast<float>(static_cast<int8_t>(block.q[e]));
    }
  }
  static void Quantize(const float* x, Block& block);
};

// q4_0, iq4_nl: f16 d, 16 bytes of nibbles.  kFlip: of the packed nibbles.
template <DType kDTypeOf, uint32_t kFlip>
struct FourBits {
  static constexpr DType kDType = kDTypeOf;
  static constexpr uint32_t kElements = 32;
  static constexpr uint32_t kBytes = 18;

  static void LoadFile(const std::byte* p, Block& block) {
    block.d = Load<uint16_t>(p);
    LoadHalfBytes(p + 2, block.q);
  }
  static void StoreFile(const Block& block, std::byte* p) {
    Store(p, block.d);
    StoreHalfBytes(block.q, p + 2);
  }
  static void LoadPacked(const PackedRow& row, size_t e, Block& block) {
    LoadNibbles(At(kDType, row, 0, e), kFlip, block.q);
    block.d = Load<uint16_t>(At(kDType, row, 1, e));
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t e) {
    StoreNibbles(block.q, kFlip, At(kDType, row, 0, e));
    Store(At(kDType, row, 1, e), block.d);
  }
};

struct Q4_0 : FourBits<DType::kQ4_0, 8> {
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) out[e] = d * static_cast<float>(block.q[e] - 8);
  }
  static void Quantize(const float* x, Block& block);
};

struct Iq4Nl : FourBits<DType::kIq4Nl, 0> {
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e)
      out[e] = d * static_cast<float>(kIq4NlValues[block.q[e]]);
  }
  static void Quantize(const float* x, Block& block);
};

struct Q5_0 {
  static constexpr DType kDType = DType::kQ5_0;
  static constexpr uint32_t kElements = 32;
  static constexpr uint32_t kBytes = 22;

  static void LoadFile(const std::byte* p, Block& block) {
    block.d = Load<uint16_t>(p);
    LoadHalfBytes(p + 6, block.q);
    const auto high = Load<uint32_t>(p + 2);
    for (uint32_t e = 0; e < kElements; ++e) {
      block.q[e] |= static_cast<uint8_t>((high >> e & 1u) << 4);
    }
  }
  static void StoreFile(const Block& block, std::byte* p) {
    Store(p, block.d);
    StoreHalfBytes(block.q, p + 6);
    uint32_t high = 0;
    for (uint32_t e = 0; e < kElements; ++e) high |= uint32_t{block.q[e]} >> 4 << e;
    Store(p + 2, high);
  }
  static void LoadPacked(const PackedRow& row, size_t e, Block& block) {
    LoadNibbles(At(kDType, row, 0, e), 0, block.q);
    LoadBits(At(kDType, row, 1, e), block.q);
    block.d = Load<uint16_t>(At(kDType, row, 2, e));
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t e) {
    StoreNibbles(block.q, 0, At(kDType, row, 0, e));
    StoreBits(block.q, At(kDType, row, 1, e));
    Store(At(kDType, row, 2, e), block.d);
  }
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) out[e] = d * static_cast<float>(block.q[e] - 16);
  }
  static void Quantize(const float* x, Block& block);
};

// q4_k and q5_k: f16 d, f16 dmin, 12 bytes of scales and mins, (32 bytes of bits 4,) 128 bytes of
// nibbles.  Run r of 32 elements has scale[r] and min[r], six bits each (see quant.h).
template <DType kDTypeOf, bool kHasBits>
struct ScaleAndMin {
  static constexpr DType kDType = kDTypeOf;
  static constexpr uint32_t kElements = 256;
  static constexpr uint32_t kBits = 16;  // offset of bits 4
  static constexpr uint32_t kNibbles = kHasBits ? 48 : 16;
  static constexpr uint32_t kBytes = kNibbles + 128;
  static constexpr size_t kScalePlane = kHasBits ? 2 : 1;
  static constexpr int kLevels = kHasBits ? 31 : 15;

  static void LoadFile(const std::byte* p, Block& block) {
    block.d = Load<uint16_t>(p);
    block.dmin = Load<uint16_t>(p + 2);
    for (uint32_t r = 0; r < 4; ++r) {
      const uint32_t a = Byte(p, 4 + r), b = Byte(p, 8 + r), c = Byte(p, 12 + r);
      block.scales[r] = static_cast<uint8_t>(a & 63u);
      block.mins[r] = static_cast<uint8_t>(b & 63u);
      block.scales[r + 4] = static_cast<uint8_t>((c & 15u) | (a >> 6) << 4);
      block.mins[r + 4] = static_cast<uint8_t>((c >> 4) | (b >> 6) << 4);
    }
    for (uint32_t e = 0; e < kElements; ++e) {
      const uint32_t r = e / 32, l = e % 32;
      uint32_t q = (Byte(p, kNibbles + 32 * (r / 2) + l) >> (4 * (r % 2))) & 15u;
      if (kHasBits) q |= (Byte(p, kBits + l) >> r & 1u) << 4;
      block.q[e] = static_cast<uint8_t>(q);
    }
  }
  static void StoreFile(const Block& block, std::byte* p) {
    std::memset(p, 0, kBytes);
    Store(p, block.d);
    Store(p + 2, block.dmin);
    for (uint32_t r = 0; r < 4; ++r) {
      Or(p, 4 + r, block.scales[r] | uint32_t{block.scales[r + 4]} >> 4 << 6);
      Or(p, 8 + r, block.mins[r] | uint32_t{block.mins[r + 4]} >> 4 << 6);
      Or(p, 12 + r, (block.scales[r + 4] & 15u) | (block.mins[r + 4] & 15u) << 4);
    }
    for (uint32_t e = 0; e < kElements; ++e) {
      const uint32_t r = e / 32, l = e % 32;
      Or(p, kNibbles + 32 * (r / 2) + l, (block.q[e] & 15u) << (4 * (r % 2)));
      if (kHasBits) Or(p, kBits + l, uint32_t{block.q[e]} >> 4 << r);
    }
  }
  static void LoadPacked(const PackedRow& row, size_t e, Block& block) {
    for (uint32_t i = 0; i < kElements; i += 32) {
      LoadNibbles(At(kDType, row, 0, e + i), 0, block.q + i);
      if (kHasBits) LoadBits(At(kDType, row, 1, e + i), block.q + i);
    }
    const std::byte* scales = At(kDType, row, kScalePlane, e);
    std::memcpy(block.scales, scales, 8);
    std::memcpy(block.mins, scales + 8, 8);
    const std::byte* d = At(kDType, row, kScalePlane + 1, e);
    block.d = Load<uint16_t>(d);
    block.dmin = Load<uint16_t>(d + 2);
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t e) {
    for (uint32_t i = 0; i < kElements; i += 32) {
      StoreNibbles(block.q + i, 0, At(kDType, row, 0, e + i));
      if (kHasBits) StoreBits(block.q + i, At(kDType, row, 1, e + i));
    }
    std::byte* scales = At(kDType, row, kScalePlane, e);
    std::memcpy(scales, block.scales, 8);
    std::memcpy(scales + 8, block.mins, 8);
    std::byte* d = At(kDType, row, kScalePlane + 1, e);
    Store(d, block.d);
    Store(d + 2, block.dmin);
  }
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d), dmin = HalfToFloat(block.dmin);
    for (uint32_t e = 0; e < kElements; ++e) {
      const uint32_t part = e / 32;
      const float scale = d * static_cast<float>(block.scales[part]);
      const float min = dmin * static_cast<float>(block.mins[part]);
      out[e] = scale * static_cast<float>(block.q[e]) - min;
    }
  }
  static void Quantize(const float* x, Block& block);
};
using Q4_K = ScaleAndMin<DType::kQ4_K, false>;
using Q5_K = ScaleAndMin<DType::kQ5_K, true>;

struct Q6_K {
  static constexpr DType kDType = DType::kQ6_K;
  static constexpr uint32_t kElements = 256;
  static constexpr uint32_t kBytes = 210;

  // Where element e lies in a file block (see quant.h).
  struct Place {
    uint32_t low_byte, low_shift, high_byte, high_shift;
  };
  static Place PlaceOf(uint32_t e) {
    const uint32_t h = e / 128, g = e / 32 % 4, l = e % 32;
    return {64 * h + 32 * (g % 2) + l, 4 * (g / 2), 128 + 32 * h + l, 2 * g};
  }

  static void LoadFile(const std::byte* p, Block& block) {
    for (uint32_t e = 0; e < kElements; ++e) {
      const Place at = PlaceOf(e);
      block.q[e] = static_cast<uint8_t>(((Byte(p, at.low_byte) >> at.low_shift) & 15u) |
                                        (((Byte(p, at.high_byte) >> at.high_shift) & 3u) << 4));
    }
    std::memcpy(block.scales, p + 192, 16);
    block.d = Load<uint16_t>(p + 208);
  }
  static void StoreFile(const Block& block, std::byte* p) {
    std::memset(p, 0, 192);
    for (uint32_t e = 0; e < kElements; ++e) {
      const Place at = PlaceOf(e);
      Or(p, at.low_byte, (block.q[e] & 15u) << at.low_shift);
      Or(p, at.high_byte, uint32_t{block.q[e]} >> 4 << at.high_shift);
    }
    std::memcpy(p + 192, block.scales, 16);
    Store(p + 208, block.d);
  }
  static void LoadPacked(const PackedRow& row, size_t e, Block& block) {
    for (uint32_t i = 0; i < kElements; i += 32) {
      LoadNibbles(At(kDType, row, 0, e + i), 0, block.q + i);
      LoadBitPairs(At(kDType, row, 1, e + i), block.q + i);
    }
    std::memcpy(block.scales, At(kDType, row, 2, e), 16);
    block.d = Load<uint16_t>(At(kDType, row, 3, e));
  }
  static void StorePacked(const Block& block, const MutablePackedRow& row, size_t e) {
    for (uint32_t i = 0; i < kElements; i += 32) {
      StoreNibbles(block.q + i, 0, At(kDType, row, 0, e + i));
      StoreBitPairs(block.q + i, At(kDType, row, 1, e + i));
    }
    std::memcpy(At(kDType, row, 2, e), block.scales, 16);
    Store(At(kDType, row, 3, e), block.d);
  }
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(block.scales[e / 16]));
      out[e] = scale * static_cast<float>(block.q[e] - 32);
    }
  }
  static void Quantize(const float* x, Block& block);
};

// Calls `f` with the codec of a block format.
template <typename F>
void WithCodec(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBf16:
      break;
    case DType::kQ8_0:
      return f(Q8_0{});
    case DType::kQ4_0:
      return f(Q4_0{});
    case DType::kQ6_K:
      return f(Q6_K{});
    case DType::kQ4_K:
      return f(Q4_K{});
    case DType::kQ5_K:
      return f(Q5_K{});
    case DType::kQ5_0:
      return f(Q5_0{});
    case DType::kIq4Nl:
      return f(Iq4Nl{});
  }
  TANDEM_CHECK(false);
}

}  // namespace tandem::codecs
