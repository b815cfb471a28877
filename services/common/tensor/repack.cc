// RepackRow: pieces at a time, because whole models pass through it when they are loaded.
#include <bit>
#include <cstring>

#include "services/common/base/check.h"
#include "services/common/tensor/packed_pieces.h"
#include "services/common/tensor/quant.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kStride = Piece{16, 0}.stride();  // of pieces of 16 bytes

uint64_t LoadWord(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
uint32_t LoadHalfWord(const std::byte* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
void StoreWord(std::byte* p, uint64_t word) { std::memcpy(p, &word, sizeof(word)); }

// f16 of block b of 32 in a plane of {16, 256}.
void CopyScale(const std::byte* from, std::byte* plane, size_t b) {
  std::memcpy(plane + b / 8 * kStride + b % 8 * 2, from, 2);
}

void RepackPlain(std::span<const std::byte> from, std::byte* plane) {
  const size_t whole = from.size() / 16;
  for (size_t i = 0; i < whole; ++i) std::memcpy(plane + i * kStride, from.data() + i * 16, 16);
  std::memcpy(plane + whole * kStride, from.data() + whole * 16, from.size() % 16);
}

void RepackQ8_0(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  std::byte* to = row.planes[0];
  for (size_t b = 0; b < num_blocks; ++b, from += 34, to += 2 * kStride) {
    CopyScale(from, row.planes[1], b);
    std::memcpy(to, from + 2, 16);
    std::memcpy(to + kStride, from + 18, 16);
  }
}

void RepackQ4_0(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  constexpr uint64_t kSigns = 0x8888888888888888ull;
  std::byte* to = row.planes[0];
  for (size_t b = 0; b < num_blocks; ++b, from += 18, to += kStride) {
    CopyScale(from, row.planes[1], b);
    StoreWord(to, LoadWord(from + 2) ^ kSigns);
    StoreWord(to + 8, LoadWord(from + 10) ^ kSigns);
  }
}

// 32 nibbles that lie one in each of 32 bytes, `shift` bits up, as a piece.
void PairNibbles(const std::byte* from, uint32_t shift, std::byte* to) {
  constexpr uint64_t kLow = 0x0F0F0F0F0F0F0F0Full;
  for (uint32_t i = 0; i < 16; i += 8) {
    StoreWord(to + i, (LoadWord(from + i) >> shift & kLow) |
                          (LoadWord(from + 16 + i) >> shift & kLow) << 4);
  }
}

// 16 bit pairs that lie one in each of 16 bytes, `shift` bits up, as one word.
uint32_t PairBits(const std::byte* from, uint32_t shift) {
  uint32_t word = 0;
  for (uint32_t s = 0; s < 4; ++s) {
    word |= (LoadHalfWord(from + 4 * s) >> shift & 0x03030303u) << (2 * s);
  }
  return word;
}

void RepackIq4Nl(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  for (size_t b = 0; b < num_blocks; ++b, from += 18) {
    CopyScale(from, row.planes[1], b);
    std::memcpy(row.planes[0] + b * kStride, from + 2, 16);
  }
}

void RepackQ5_0(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  for (size_t b = 0; b < num_blocks; ++b, from += 22) {
    CopyScale(from, row.planes[2], b);
    std::memcpy(row.planes[0] + b * kStride, from + 6, 16);
    const uint32_t high = LoadHalfWord(from + 2);  // bit 4 t + i goes to bit 8 i + t
    uint32_t word = 0;
    for (uint32_t t = 0; t < 8; ++t) {
      word |= ((high >> (4 * t) & 15u) * 0x00204081u & 0x01010101u) << t;
    }
    std::memcpy(row.planes[1] + b / 4 * kStride + b % 4 * 4, &word, sizeof(word));
  }
}

// q4_k and q5_k: the twelve bytes p of quant.h as eight scales, then eight mins.
void UnpackScales(const std::byte* p, std::byte* to) {
  const uint32_t a = LoadHalfWord(p), b = LoadHalfWord(p + 4), c = LoadHalfWord(p + 8);
  constexpr uint32_t kSix = 0x3F3F3F3Fu, kFour = 0x0F0F0F0Fu, kTop = 0x30303030u;
  const uint32_t words[4] = {a & kSix, (c & kFour) | (a >> 2 & kTop), b & kSix,
                             (c >> 4 & kFour) | (b >> 2 & kTop)};
  std::memcpy(to, words, sizeof(words));
}

void RepackScaleAndMin(const std::byte* from, bool has_bits, size_t num_blocks,
                       const MutablePackedRow& row) {
  const size_t nibbles = has_bits ? 48 : 16, scale_plane = has_bits ? 2 : 1;
  for (size_t b = 0; b < num_blocks; ++b, from += nibbles + 128) {
    for (uint32_t run = 0; run < 8; ++run) {
      PairNibbles(from + nibbles + run / 2 * 32, run % 2 * 4,
                  row.planes[0] + (8 * b + run) * kStride);
      if (!has_bits) continue;
      uint32_t word = 0;
      for (uint32_t t = 0; t < 8; ++t) {
        word |= (LoadHalfWord(from + 16 + 4 * t) >> run & 0x01010101u) << t;
      }
      std::memcpy(row.planes[1] + (2 * b + run / 4) * kStride + run % 4 * 4, &word, sizeof(word));
    }
    UnpackScales(from + 4, row.planes[scale_plane] + b * kStride);
    std::memcpy(row.planes[scale_plane + 1] + b * Piece{4, 0}.stride(), from, 4);
  }
}

void RepackQ6_K(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  for (size_t b = 0; b < num_blocks; ++b, from += 210) {
    for (uint32_t run = 0; run < 8; ++run) {  // 32 elements each; h and g as in quant.h
      const uint32_t h = run / 4, g = run % 4;
      PairNibbles(from + 64 * h + 32 * (g % 2), 4 * (g / 2),
                  row.planes[0] + (8 * b + run) * kStride);
      const std::byte* high = from + 128 + 32 * h;
      StoreWord(row.planes[1] + (4 * b + run / 2) * kStride + run % 2 * 8,
                PairBits(high, 2 * g) | uint64_t{PairBits(high + 16, 2 * g)} << 32);
    }
    std::memcpy(row.planes[2] + b * kStride, from + 192, 16);
    std::memcpy(row.planes[3] + b * Piece{2, 0}.stride(), from + 208, 2);
  }
}

}  // namespace

void RepackRow(DType dtype, std::span<const std::byte> file_row, size_t num_elements,
               const MutablePackedRow& row) {
  const size_t bytes = RowBytes(dtype, num_elements);
  TANDEM_CHECK(file_row.size() >= bytes);
  std::byte* const* plane = row.planes;
  for (const Piece& piece : PiecesOf(dtype)) {  // what a row leaves over of its last pieces
    const size_t num_pieces = PiecesOfRow(piece, num_elements);
    for (size_t i = num_elements / piece.elements; i < num_pieces; ++i) {
      std::memset(*plane + i * piece.stride(), 0, piece.bytes);
    }
    ++plane;
  }
  const size_t num_blocks = num_elements / Traits(dtype).block_elements;
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBf16:
      return RepackPlain(file_row.first(bytes), row.planes[0]);
    case DType::kQ8_0:
      return RepackQ8_0(file_row.data(), num_blocks, row);
    case DType::kQ4_0:
      return RepackQ4_0(file_row.data(), num_blocks, row);
    case DType::kIq4Nl:
      return RepackIq4Nl(file_row.data(), num_blocks, row);
    case DType::kQ5_0:
      return RepackQ5_0(file_row.data(), num_blocks, row);
    case DType::kQ4_K:
    case DType::kQ5_K:
      return RepackScaleAndMin(file_row.data(), dtype == DType::kQ5_K, num_blocks, row);
    case DType::kQ6_K:
      return RepackQ6_K(file_row.data(), num_blocks, row);
    default:
      return RepackRowByElement(dtype, file_row, num_elements, row);
  }
}

}  // namespace tandem
