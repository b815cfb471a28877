// The packed layout byte by byte, from the tables and words of packed_tensor.h alone: other code
// that reads weights (shaders, NPU kernels) is written to those.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "services/common/base/half.h"
#include "services/common/weights/dequantize.h"

namespace tandem {
namespace {

// One row in the file layout: its bytes, and its codes as a reader of the file sees them.
struct FileRow {
  std::vector<std::byte> bytes;
  std::vector<uint32_t> q;  // codes; q8_0: int8 as its bits
};

// The code of a number whose scales are one.
uint32_t CodeOf(DType dtype, int value) {
  constexpr int kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
  switch (dtype) {
    case DType::kQ4_0:
      return static_cast<uint32_t>(value + 8);
    case DType::kQ5_0:
      return static_cast<uint32_t>(value + 16);
    case DType::kQ6_K:
      return static_cast<uint32_t>(value + 32);
    case DType::kIq4Nl:
      return static_cast<uint32_t>(std::find(kTable, kTable + 16, value) - kTable);
    default:
      return static_cast<uint32_t>(value) & 255u;
  }
}

// Codes come from the dequantised numbers of the same row with every scale set to one.
FileRow RandomRow(DType dtype, size_t cols, std::mt19937& random) {
  FileRow row;
  row.bytes.resize(RowBytes(dtype, cols));
  for (std::byte& byte : row.bytes) byte = static_cast<std::byte>(random());
  const size_t block_bytes = Traits(dtype).block_bytes;
  const uint16_t one = FloatToHalf(1.0f);
  std::vector<std::byte> plain = row.bytes;
  for (size_t at = 0; at < plain.size(); at += block_bytes) {
    std::byte* block = plain.data() + at;
    switch (dtype) {
      case DType::kQ8_0:
      case DType::kQ4_0:
      case DType::kQ5_0:
      case DType::kIq4Nl:
        std::memcpy(block, &one, 2);
        break;
      case DType::kQ4_K:
      case DType::kQ5_K:  // dmin and all m 0, all s 1
        std::memset(block, 0, 16);
        std::memcpy(block, &one, 2);
        std::memset(block + 4, 1, 4);
        std::memset(block + 12, 1, 4);
        break;
      case DType::kQ6_K:
        std::memset(block + 192, 1, 16);
        std::memcpy(block + 208, &one, 2);
        break;
      default:
        break;
    }
  }
  if (Traits(dtype).block_elements == 1) return row;
  std::vector<float> values(cols);
  DequantizeFileRow(dtype, plain, values);
  for (const float value : values) row.q.push_back(CodeOf(dtype, static_cast<int>(value)));
  return row;
}

struct PlaneSpec {
  uint32_t piece_bytes, piece_elements;
  // Byte `i` of the piece that begins with element `e` of a row.
  uint32_t (*byte)(const FileRow& row, size_t e, size_t i);
};

uint32_t At(const FileRow& row, size_t offset) {
  return offset < row.bytes.size() ? static_cast<uint32_t>(row.bytes[offset]) : 0u;
}
uint32_t Code(const FileRow& row, size_t e) { return e < row.q.size() ? row.q[e] : 0u; }

template <size_t kBytesPerElement>
uint32_t Plain(const FileRow& row, size_t e, size_t i) {
  return At(row, e * kBytesPerElement + i);
}
uint32_t Int8(const FileRow& row, size_t e, size_t i) { return Code(row, e + i); }
uint32_t Nibbles(const FileRow& row, size_t e, size_t i) {
  return (Code(row, e + i) & 15u) | (Code(row, e + i + 16) & 15u) << 4;
}
uint32_t SignedNibbles(const FileRow& row, size_t e, size_t i) {
  return ((Code(row, e + i) - 8u) & 15u) | ((Code(row, e + i + 16) - 8u) & 15u) << 4;
}
// Bit 8 i + s of a word is element 4 s + i.
uint32_t Bits(const FileRow& row, size_t e, size_t i) {
  uint32_t byte = 0;
  for (size_t s = 0; s < 8; ++s) byte |= Code(row, e + i / 4 * 32 + 4 * s + i % 4) >> 4 << s;
  return byte;
}
// Bits 8 i + 2 s of a word are element 4 s + i of its half of 32.
uint32_t BitPairs(const FileRow& row, size_t e, size_t i) {
  uint32_t byte = 0;
  for (size_t s = 0; s < 4; ++s) byte |= Code(row, e + i / 4 * 16 + 4 * s + i % 4) >> 4 << (2 * s);
  return byte;
}
// Byte i % kBytes of what block i / kBytes of the piece's blocks holds at kOffset.
template <size_t kBlockElements, size_t kBlockBytes, size_t kOffset, size_t kBytes>
uint32_t OfBlock(const FileRow& row, size_t e, size_t i) {
  return At(row, (e / kBlockElements + i / kBytes) * kBlockBytes + kOffset + i % kBytes);
}

// s[8], m[8] of q4_k (blocks of 144 bytes) and q5_k (176).
template <size_t kBlockBytes>
uint32_t ScalesAndMins(const FileRow& row, size_t e, size_t i) {
  const size_t p = e / 256 * kBlockBytes + 4, j = i % 8, own = i < 8 ? 0 : 4;
  if (j < 4) return At(row, p + own + j) & 63u;
  const uint32_t low = At(row, p + 8 + j - 4) >> own & 15u;
  return low | At(row, p + own + j - 4) >> 6 << 4;
}

struct FormatSpec {
  DType dtype;
  std::vector<size_t> cols;
  std::vector<PlaneSpec> planes;
};

const FormatSpec kFormats[] = {
    {DType::kF32, {1, 5, 8, 64}, {{16, 4, Plain<4>}}},
    {DType::kF16, {1, 13, 16, 96}, {{16, 8, Plain<2>}}},
    {DType::kBf16, {1, 13, 16, 96}, {{16, 8, Plain<2>}}},
    {DType::kQ8_0, {32, 224, 256, 288}, {{16, 16, Int8}, {16, 256, OfBlock<32, 34, 0, 2>}}},
    {DType::kQ4_0,
     {32, 224, 256, 288},
     {{16, 32, SignedNibbles}, {16, 256, OfBlock<32, 18, 0, 2>}}},
    {DType::kIq4Nl, {32, 224, 256, 288}, {{16, 32, Nibbles}, {16, 256, OfBlock<32, 18, 0, 2>}}},
    {DType::kQ5_0,
     {32, 96, 224, 256, 288},
     {{16, 32, Nibbles}, {16, 128, Bits}, {16, 256, OfBlock<32, 22, 0, 2>}}},
    {DType::kQ4_K,
     {256, 768},
     {{16, 32, Nibbles}, {16, 256, ScalesAndMins<144>}, {4, 256, OfBlock<256, 144, 0, 4>}}},
    {DType::kQ5_K,
     {256, 768},
     {{16, 32, Nibbles},
      {16, 128, Bits},
      {16, 256, ScalesAndMins<176>},
      {4, 256, OfBlock<256, 176, 0, 4>}}},
    {DType::kQ6_K,
     {256, 768},
     {{16, 32, Nibbles},
      {16, 64, BitPairs},
      {16, 256, OfBlock<256, 210, 192, 16>},
      {2, 256, OfBlock<256, 210, 208, 2>}}},
};

// A shard as packed_tensor.h describes it.
std::vector<std::byte> Expected(const FormatSpec& format, const std::vector<FileRow>& rows,
                                size_t cols) {
  std::vector<std::byte> shard;
  for (const PlaneSpec& plane : format.planes) {
    const size_t offset = (shard.size() + 255) / 256 * 256;
    const size_t padded = (cols + 31) / 32 * 32;
    const size_t pieces_per_row = (padded + plane.piece_elements - 1) / plane.piece_elements;
    const size_t num_tiles = (rows.size() + 31) / 32;
    shard.resize(offset + num_tiles * pieces_per_row * 32 * plane.piece_bytes);
    for (size_t r = 0; r < rows.size(); ++r) {
      for (size_t piece = 0; piece < pieces_per_row; ++piece) {
        std::byte* at = shard.data() + offset +
                        ((r / 32 * pieces_per_row + piece) * 32 + r % 32) * plane.piece_bytes;
        for (size_t i = 0; i < plane.piece_bytes; ++i) {
          at[i] = static_cast<std::byte>(plane.byte(rows[r], piece * plane.piece_elements, i));
        }
      }
    }
  }
  shard.resize((shard.size() + 255) / 256 * 256);
  return shard;
}

class PackedLayoutTest : public ::testing::TestWithParam<FormatSpec> {};

TEST_P(PackedLayoutTest, EveryByteIsWhereTheTableSays) {
  const FormatSpec& format = GetParam();
  std::mt19937 random(17);
  for (const size_t num_rows : {1u, 31u, 32u, 37u, 67u}) {
    for (const size_t cols : format.cols) {
      SCOPED_TRACE(testing::Message() << num_rows << " x " << cols);
      std::vector<FileRow> rows;
      for (size_t r = 0; r < num_rows; ++r) rows.push_back(RandomRow(format.dtype, cols, random));
      ASSERT_EQ(PlanesOf(format.dtype, num_rows, cols).size(), format.planes.size());
      const std::vector<std::byte> expected = Expected(format, rows, cols);
      std::vector<std::byte> actual(ShardBytes(format.dtype, num_rows, cols));
      for (size_t r = 0; r < num_rows; ++r) {
        RepackRow(format.dtype, rows[r].bytes, cols,
                  RowInShard(format.dtype, num_rows, cols, actual.data(), r));
      }
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        ASSERT_EQ(actual[i], expected[i]) << "byte " << i;
      }
    }
  }
}

// What lay in a row's memory before does not matter, and a row leaves its neighbours alone.
TEST_P(PackedLayoutTest, ARowWritesAllItsPiecesAndNoOthers) {
  const FormatSpec& format = GetParam();
  std::mt19937 random(19);
  constexpr size_t kRows = 32, kRow = 7;
  for (const size_t cols : format.cols) {
    SCOPED_TRACE(cols);
    const FileRow row = RandomRow(format.dtype, cols, random);
    std::vector<std::byte> clean(ShardBytes(format.dtype, kRows, cols)), dirty = clean;
    std::ranges::fill(dirty, std::byte{0xA5});
    std::vector<bool> is_rows(clean.size());
    for (const Plane& plane : PlanesOf(format.dtype, kRows, cols)) {
      for (size_t i = 0; i < plane.pieces_per_row; ++i) {
        const size_t at = plane.RowOffset(kRow) + i * plane.piece.stride();
        std::fill_n(is_rows.begin() + static_cast<ptrdiff_t>(at), plane.piece.bytes, true);
      }
    }
    for (auto* shard : {&clean, &dirty}) {
      RepackRow(format.dtype, row.bytes, cols,
                RowInShard(format.dtype, kRows, cols, shard->data(), kRow));
    }
    for (size_t i = 0; i < clean.size(); ++i) {
      ASSERT_EQ(dirty[i], is_rows[i] ? clean[i] : std::byte{0xA5}) << "byte " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedLayoutTest, ::testing::ValuesIn(kFormats),
                         [](const auto& test) {
                           return std::string(Traits(test.param.dtype).name);
                         });

TEST(PackedFormatsTest, EveryFormatIsPinned) {
  EXPECT_EQ(std::size(kFormats), static_cast<size_t>(kNumDTypes));
}

}  // namespace
}  // namespace tandem
