// Block formats taken apart, element by element: the plain definition that fast paths are tested
// against.  Included by quant.cc alone.
//
// A codec knows its file block (LoadFile, StoreFile), its values (Dequantize) and how values are
// rounded (Quantize, quantize.cc); how codes lie in the packed layout is common to all, but for
// the fields that a codec says it has.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "services/common/base/half.h"
#include "services/common/tensor/packed_row.h"

namespace tandem::codecs {

static_assert(std::endian::native == std::endian::little);

// One block: codes as in the file, before a zero point is subtracted (q8_0: int8 as its bits).
struct Block {
  uint16_t d = 0;           // f16
  uint8_t scales[16] = {};  // q6_k: int8 as its bits
  uint8_t q[256] = {};
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

inline uint32_t Byte(const std::byte* p, size_t i) { return static_cast<uint32_t>(p[i]); }
inline void Or(std::byte* p, size_t i, uint32_t bits) { p[i] |= static_cast<std::byte>(bits); }

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
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) {
      out[e] = d * static_cast<float>(static_cast<int8_t>(block.q[e]));
    }
  }
  static void Quantize(const float* x, Block& block);
};

struct Q4_0 {
  static constexpr DType kDType = DType::kQ4_0;
  static constexpr uint32_t kElements = 32;
  static constexpr uint32_t kBytes = 18;

  static void LoadFile(const std::byte* p, Block& block) {
    block.d = Load<uint16_t>(p);
    for (uint32_t e = 0; e < kElements; ++e) {
      block.q[e] = static_cast<uint8_t>((Byte(p, 2 + e % 16) >> (4 * (e / 16))) & 15u);
    }
  }
  static void StoreFile(const Block& block, std::byte* p) {
    Store(p, block.d);
    std::memset(p + 2, 0, 16);
    for (uint32_t e = 0; e < kElements; ++e) Or(p, 2 + e % 16, block.q[e] << (4 * (e / 16)));
  }
  static void Dequantize(const Block& block, float* out) {
    const float d = HalfToFloat(block.d);
    for (uint32_t e = 0; e < kElements; ++e) out[e] = d * static_cast<float>(block.q[e] - 8);
  }
  static void Quantize(const float* x, Block& block);
};

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
      Or(p, at.high_byte, (block.q[e] >> 4u) << at.high_shift);
    }
    std::memcpy(p + 192, block.scales, 16);
    Store(p + 208, block.d);
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

// Where the numbers of element e lie in plane p of a row.
template <typename Row>
auto* At(DType dtype, const Row& row, int p, size_t e) {
  const Piece piece = PiecesOf(dtype)[static_cast<size_t>(p)];
  return row.planes[p] + e / piece.elements * piece.stride() +
         e % piece.elements * piece.bytes / piece.elements;
}

// A packed row's fields, 32 elements from q on (weights/packed_tensor.h).
inline void LoadNibbles(const std::byte* p, uint32_t flip, uint8_t* q) {
  for (uint32_t i = 0; i < 32; ++i) {
    q[i] = static_cast<uint8_t>(((Byte(p, i % 16) >> (4 * (i / 16))) & 15u) ^ flip);
  }
}
inline void StoreNibbles(const uint8_t* q, uint32_t flip, std::byte* p) {
  for (uint32_t i = 0; i < 32; ++i) Or(p, i % 16, ((q[i] & 15u) ^ flip) << (4 * (i / 16)));
}

// Bits 4 and 5 of the codes: the first of two bits of element i.
inline uint32_t BitPairPlace(uint32_t i) { return 32 * (i / 16) + 8 * (i % 4) + 2 * (i % 16 / 4); }

inline void LoadBitPairs(const std::byte* p, uint8_t* q) {
  const auto word = Load<uint64_t>(p);
  for (uint32_t i = 0; i < 32; ++i) {
    q[i] |= static_cast<uint8_t>((word >> BitPairPlace(i) & 3u) << 4);
  }
}
inline void StoreBitPairs(const uint8_t* q, std::byte* p) {
  uint64_t word = 0;
  for (uint32_t i = 0; i < 32; ++i) word |= uint64_t{q[i]} >> 4 << BitPairPlace(i);
  Store(p, word);
}

// Block b of a packed row.
template <typename Codec>
void LoadPacked(const PackedRow& row, size_t b, Block& block) {
  constexpr DType kDType = Codec::kDType;
  const size_t first = b * Codec::kElements;
  for (uint32_t e = 0; e < Codec::kElements; e += 32) {
    uint8_t* q = block.q + e;
    if constexpr (kDType == DType::kQ8_0) {
      std::memcpy(q, At(kDType, row, 0, first), 16);
      std::memcpy(q + 16, At(kDType, row, 0, first + 16), 16);
    } else {
      LoadNibbles(At(kDType, row, 0, first + e), kDType == DType::kQ4_0 ? 8 : 0, q);
    }
    if constexpr (kDType == DType::kQ6_K) LoadBitPairs(At(kDType, row, 1, first + e), q);
  }
  if constexpr (kDType == DType::kQ6_K) {
    std::memcpy(block.scales, At(kDType, row, 2, first), 16);
    block.d = Load<uint16_t>(At(kDType, row, 3, first));
  } else {
    block.d = Load<uint16_t>(At(kDType, row, 1, first));
  }
}

// REQUIRES the row's planes are zero there.
template <typename Codec>
void StorePacked(const Block& block, const MutablePackedRow& row, size_t b) {
  constexpr DType kDType = Codec::kDType;
  const size_t first = b * Codec::kElements;
  for (uint32_t e = 0; e < Codec::kElements; e += 32) {
    const uint8_t* q = block.q + e;
    if constexpr (kDType == DType::kQ8_0) {
      std::memcpy(At(kDType, row, 0, first), q, 16);
      std::memcpy(At(kDType, row, 0, first + 16), q + 16, 16);
    } else {
      StoreNibbles(q, kDType == DType::kQ4_0 ? 8 : 0, At(kDType, row, 0, first + e));
    }
    if constexpr (kDType == DType::kQ6_K) StoreBitPairs(q, At(kDType, row, 1, first + e));
  }
  if constexpr (kDType == DType::kQ6_K) {
    std::memcpy(At(kDType, row, 2, first), block.scales, 16);
    Store(At(kDType, row, 3, first), block.d);
  } else {
    Store(At(kDType, row, 1, first), block.d);
  }
}

}  // namespace tandem::codecs
