// RepackRow: eight bytes at a time, because whole models pass through it when they are loaded.
#include <bit>
#include <cstring>

#include "services/common/base/check.h"
#include "services/common/tensor/quant.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little);

uint64_t LoadWord(const std::byte* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// The low nibbles of eight bytes, side by side: byte i to nibble i.
uint32_t PackNibbles(uint64_t bytes) {
  uint64_t x = bytes & 0x0F0F0F0F0F0F0F0Full;
  x = (x | x >> 4) & 0x00FF00FF00FF00FFull;
  x = (x | x >> 8) & 0x0000FFFF0000FFFFull;
  return static_cast<uint32_t>(x | x >> 16);
}

// The low two bits of eight bytes, side by side.
uint16_t PackBitPairs(uint64_t bytes) {
  uint64_t x = bytes & 0x0303030303030303ull;
  x = (x | x >> 6) & 0x000F000F000F000Full;
  x = (x | x >> 12) & 0x000000FF000000FFull;
  return static_cast<uint16_t>(x | x >> 24);
}

void RepackQ8_0(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  for (size_t b = 0; b < num_blocks; ++b, from += 34) {
    std::memcpy(row.planes[1] + b * 2, from, 2);
    std::memcpy(row.planes[0] + b * 32, from + 2, 32);
  }
}

void RepackQ4_0(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  for (size_t b = 0; b < num_blocks; ++b, from += 18) {
    std::memcpy(row.planes[1] + b * 2, from, 2);
    const uint64_t first = LoadWord(from + 2), second = LoadWord(from + 10);
    const uint32_t nibbles[4] = {PackNibbles(first), PackNibbles(second), PackNibbles(first >> 4),
                                 PackNibbles(second >> 4)};
    std::memcpy(row.planes[0] + b * 16, nibbles, sizeof(nibbles));
  }
}

void RepackQ6_K(const std::byte* from, size_t num_blocks, const MutablePackedRow& row) {
  for (size_t b = 0; b < num_blocks; ++b, from += 210) {
    const std::byte* low = from;
    const std::byte* high = from + 128;
    uint32_t nibbles[32];
    uint16_t bit_pairs[32];
    for (uint32_t run = 0; run < 8; ++run) {  // 32 elements each; h and g as in quant.h
      const uint32_t h = run / 4, g = run % 4;
      for (uint32_t i = 0; i < 4; ++i) {
        nibbles[4 * run + i] =
            PackNibbles(LoadWord(low + 64 * h + 32 * (g % 2) + 8 * i) >> (4 * (g / 2)));
        bit_pairs[4 * run + i] = PackBitPairs(LoadWord(high + 32 * h + 8 * i) >> (2 * g));
      }
    }
    std::memcpy(row.planes[0] + b * 128, nibbles, sizeof(nibbles));
    std::memcpy(row.planes[1] + b * 64, bit_pairs, sizeof(bit_pairs));
    std::memcpy(row.planes[2] + b * 16, from + 192, 16);
    std::memcpy(row.planes[3] + b * 2, from + 208, 2);
  }
}

}  // namespace

void RepackRow(DType dtype, std::span<const std::byte> file_row, size_t num_elements,
               const MutablePackedRow& row) {
  const size_t bytes = RowBytes(dtype, num_elements);
  TANDEM_CHECK(file_row.size() >= bytes);
  const size_t num_blocks = num_elements / Traits(dtype).block_elements;
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBf16:
      std::memcpy(row.planes[0], file_row.data(), bytes);
      return;
    case DType::kQ8_0:
      return RepackQ8_0(file_row.data(), num_blocks, row);
    case DType::kQ4_0:
      return RepackQ4_0(file_row.data(), num_blocks, row);
    case DType::kQ6_K:
      return RepackQ6_K(file_row.data(), num_blocks, row);
  }
  TANDEM_CHECK(false);
}

}  // namespace tandem
