// The packed layout, seen from one row: the pieces it is cut into, and where they lie.
//
// A packed matrix is stored in tiles of kTileRows rows, each format as one to four *planes*.  In a
// plane a row is a sequence of pieces, and the pieces with the same index of a tile's rows lie side
// by side:
//
//   tile 0: row 0 piece 0 | row 1 piece 0 | ... | row 31 piece 0 | row 0 piece 1 | ...
//
// so that a group of lanes with a row each reads one contiguous run, and each lane whole pieces.
// What a format's planes hold is said in weights/packed_tensor.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "services/common/tensor/dtype.h"

namespace tandem {

inline constexpr uint32_t kTileRows = 32;
inline constexpr int kMaxPlanes = 4;

// What one plane holds of a row at a time.  The last piece of a row is filled up with zeros.
struct Piece {
  uint32_t bytes = 0;
  uint32_t elements = 0;

  // Between a row's pieces.
  constexpr size_t stride() const { return size_t{kTileRows} * bytes; }
};

// The pieces of a format's planes, one to kMaxPlanes.
std::span<const Piece> PiecesOf(DType dtype);

// The first piece of one row in each plane; planes a format lacks are null.
struct PackedRow {
  const std::byte* planes[kMaxPlanes] = {};
};
struct MutablePackedRow {
  std::byte* planes[kMaxPlanes] = {};
  // NOLINTNEXTLINE(google-explicit-constructor): what can be written can be read.
  operator PackedRow() const { return {{planes[0], planes[1], planes[2], planes[3]}}; }
};

}  // namespace tandem
