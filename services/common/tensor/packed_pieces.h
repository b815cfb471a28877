// How many pieces a packed row has: what its writers fill, zeros included.
#pragma once

#include <cstddef>

#include "services/common/tensor/packed_row.h"

namespace tandem {

// A row is packed in whole blocks of 32 elements (kBlockColumns in weights/packed_tensor.h).
constexpr size_t PiecesOfRow(const Piece& piece, size_t num_elements) {
  constexpr size_t kBlock = 32;
  const size_t padded = (num_elements + kBlock - 1) / kBlock * kBlock;
  return (padded + piece.elements - 1) / piece.elements;
}

}  // namespace tandem
