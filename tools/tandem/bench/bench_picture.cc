#include "tools/tandem/bench/bench_picture.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <random>
#include <string_view>
#include <vector>

namespace tandem {
namespace {

constexpr int kNumRectangles = 12;

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string Chunk(std::string_view kind, std::string_view data) {
  std::string body(kind);
  body += data;
  const uLong crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndian(static_cast<uint32_t>(data.size())) + body +
         BigEndian(static_cast<uint32_t>(crc));
}

// Rows as PNG stores them: a filter's number (0: none), then RGB.
std::string Rows(uint32_t side, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t row_bytes = 1 + size_t{3} * side;
  std::string rows(row_bytes * side, '\0');
  for (uint32_t y = 0; y < side; ++y) {
    for (size_t i = 1; i < row_bytes; ++i) {
      rows[y * row_bytes + i] = static_cast<char>(160 + (random() >> 62));
    }
  }
  for (int rectangle = 0; rectangle < kNumRectangles; ++rectangle) {
    const auto place = [&] { return static_cast<uint32_t>(random() % side); };
    const auto [left, right] = std::minmax({place(), place()});
    const auto [top, bottom] = std::minmax({place(), place()});
    const uint64_t colour = random();
    for (uint32_t y = top; y < bottom; ++y) {
      for (size_t i = size_t{3} * left; i < size_t{3} * right; ++i) {
        rows[y * row_bytes + 1 + i] = static_cast<char>(colour >> (8 * (i % 3)));
      }
    }
  }
  return rows;
}

}  // namespace

std::string MakeBenchPicture(uint32_t side, uint64_t seed) {
  const std::string rows = Rows(side, seed);
  uLongf size = ::compressBound(static_cast<uLong>(rows.size()));
  std::string packed(size, '\0');
  ::compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
              reinterpret_cast<const Bytef*>(rows.data()), static_cast<uLong>(rows.size()), 1);
  packed.resize(size);
  // 8 bits a channel, RGB, the only compression and filters, not interlaced.
  const std::string header =
      BigEndian(side) + BigEndian(side) + std::string("\x08\x02\x00\x00\x00", 5);
  return "\x89PNG\r\n\x1a\n" + Chunk("IHDR", header) + Chunk("IDAT", packed) + Chunk("IEND", "");
}

}  // namespace tandem
