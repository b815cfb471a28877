// Fields of packed rows, element by element (weights/packed_tensor.h).  Included by quant.cc alone.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "services/common/tensor/packed_row.h"

namespace tandem::codecs {

static_assert(std::endian::native == std::endian::little);

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

// Where the numbers of element e lie in plane p of a row.
template <typename Row>
auto* At(DType dtype, const Row& row, size_t p, size_t e) {
  const Piece piece = PiecesOf(dtype)[p];
  return row.planes[p] + e / piece.elements * piece.stride() +
         e % piece.elements * piece.bytes / piece.elements;
}

// Of 32 codes q: their low four bits, each flipped by `flip`.
inline void LoadNibbles(const std::byte* p, uint32_t flip, uint8_t* q) {
  for (uint32_t i = 0; i < 32; ++i) {
    q[i] = static_cast<uint8_t>(((Byte(p, i % 16) >> (4 * (i / 16))) & 15u) ^ flip);
  }
}
inline void StoreNibbles(const uint8_t* q, uint32_t flip, std::byte* p) {
  for (uint32_t i = 0; i < 32; ++i) Or(p, i % 16, ((q[i] & 15u) ^ flip) << (4 * (i / 16)));
}

// Bit 4 of 32 codes.
inline uint32_t BitPlace(uint32_t i) { return 8 * (i % 4) + i / 4; }

inline void LoadBits(const std::byte* p, uint8_t* q) {
  const auto word = Load<uint32_t>(p);
  for (uint32_t i = 0; i < 32; ++i) q[i] |= static_cast<uint8_t>((word >> BitPlace(i) & 1u) << 4);
}
inline void StoreBits(const uint8_t* q, std::byte* p) {
  uint32_t word = 0;
  for (uint32_t i = 0; i < 32; ++i) word |= uint32_t{q[i]} >> 4 << BitPlace(i);
  Store(p, word);
}

// Bits 4 and 5 of 32 codes.
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

}  // namespace tandem::codecs
