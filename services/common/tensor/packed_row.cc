#include "services/common/tensor/packed_row.h"

#include "services/common/base/check.h"

namespace tandem {
namespace {

// As the table of weights/packed_tensor.h.
constexpr Piece kF32[] = {{16, 4}};
constexpr Piece kHalf[] = {{16, 8}};
constexpr Piece kQ8_0[] = {{16, 16}, {16, 256}};
constexpr Piece kNibbles[] = {{16, 32}, {16, 256}};
constexpr Piece kQ5_0[] = {{16, 32}, {16, 128}, {16, 256}};
constexpr Piece kQ4_K[] = {{16, 32}, {16, 256}, {4, 256}};
constexpr Piece kQ5_K[] = {{16, 32}, {16, 128}, {16, 256}, {4, 256}};
constexpr Piece kQ6_K[] = {{16, 32}, {16, 64}, {16, 256}, {2, 256}};

}  // namespace

std::span<const Piece> PiecesOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kF32;
    case DType::kF16:
    case DType::kBf16:
      return kHalf;
    case DType::kQ8_0:
      return kQ8_0;
    case DType::kQ4_0:
    case DType::kIq4Nl:
      return kNibbles;
    case DType::kQ5_0:
      return kQ5_0;
    case DType::kQ4_K:
      return kQ4_K;
    case DType::kQ5_K:
      return kQ5_K;
    case DType::kQ6_K:
      return kQ6_K;
  }
  TANDEM_CHECK(false);
  return {};
}

}  // namespace tandem
