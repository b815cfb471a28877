#include "services/common/tensor/format_table.h"

#include <array>
#include <iterator>

#include "services/common/base/check.h"

namespace tandem {
namespace {

// Planes, {bytes, elements} of a piece: the table of weights/packed_tensor.h.
constexpr Piece kFloats[] = {{16, 4}};
constexpr Piece kHalves[] = {{16, 8}};
constexpr Piece kBytes[] = {{16, 16}, {16, 256}};
constexpr Piece kNibbles[] = {{16, 32}, {16, 256}};
constexpr Piece kQ5_0[] = {{16, 32}, {16, 128}, {16, 256}};
constexpr Piece kQ4_K[] = {{16, 32}, {16, 256}, {4, 256}};
constexpr Piece kQ5_K[] = {{16, 32}, {16, 128}, {16, 256}, {4, 256}};
constexpr Piece kQ6_K[] = {{16, 32}, {16, 64}, {16, 256}, {2, 256}};

// Deviations are the root mean squares of uniformly drawn codes, q:
//   q8_0    q in [-128, 127]: 73.9
//   q4_0    q in [-8, 7]: 4.64
//   q5_0    q in [-16, 15]: 9.25
//   iq4_nl  its table: 67.4
//   q6_k    q in [-32, 31]: 18.5; times sub-scales of 8 to 15: 11.7
//   q4_k    s q - 7.5 m, s and m in [0, 63], q in [0, 15]: 258, of mean zero
//   q5_k    s q - 15.5 m, q in [0, 31]: 527
constexpr FormatRow kRows[] = {
    {DType::kF32, {"f32", 1, 4}, kFloats, 0, 0},
    {DType::kF16, {"f16", 1, 2}, kHalves, 1, 1},
    {DType::kBf16, {"bf16", 1, 2}, kHalves, 30, 32},
    {DType::kQ8_0, {"q8_0", 32, 34}, kBytes, 8, 7, 0, 73.9f},
    {DType::kQ4_0, {"q4_0", 32, 18}, kNibbles, 2, 2, 0, 4.64f},
    {DType::kQ6_K, {"q6_k", 256, 210}, kQ6_K, 14, 18, 0, 18.5f * 11.7f, 208},
    {DType::kQ4_K, {"q4_k", 256, 144}, kQ4_K, 12, 14, 15, 258.0f, 0, 7.5f},
    {DType::kQ5_K, {"q5_k", 256, 176}, kQ5_K, 13, 16, 17, 527.0f, 0, 15.5f},
    {DType::kQ5_0, {"q5_0", 32, 22}, kQ5_0, 6, 8, 0, 9.25f},
    {DType::kIq4Nl, {"iq4_nl", 32, 18}, kNibbles, 20, 25, 0, 67.4f},
};

constexpr bool RowsAreInOrder() {
  for (uint32_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<uint32_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(std::size(kRows) == kNumDTypes, "a row for each format of dtype_numbers.inc");
static_assert(RowsAreInOrder(), "rows are in the order of dtype_numbers.inc");

}  // namespace

const FormatRow& RowOf(DType dtype) {
  const auto index = static_cast<uint32_t>(dtype);
  TANDEM_CHECK(index < kNumDTypes);
  return kRows[index];
}

const DTypeTraits& Traits(DType dtype) { return RowOf(dtype).traits; }

std::span<const Piece> PiecesOf(DType dtype) { return RowOf(dtype).pieces; }

std::span<const DType> AllDTypes() {
  static constexpr auto kAll = [] {
    std::array<DType, kNumDTypes> all{};
    for (int i = 0; i < kNumDTypes; ++i) all[i] = kRows[i].dtype;
    return all;
  }();
  return kAll;
}

size_t RowBytes(DType dtype, size_t num_elements) {
  const DTypeTraits& traits = Traits(dtype);
  TANDEM_CHECK(num_elements % traits.block_elements == 0);
  return num_elements / traits.block_elements * traits.block_bytes;
}

}  // namespace tandem
