// Which products run on matrix units, and in what tiles.
#pragma once

#include <cstdint>
#include <vector>

#include "services/gpu_worker/kernels/matrix_pattern.h"

namespace tandem::gpu {

// Work of a workgroup of coop_matmul.comp.
struct MatrixTile {
  uint32_t max_rows = 0;   // for products of up to so many rows
  uint32_t columns = 32;   // of a subgroup: 16, 32 or 64
  uint32_t rows = 32;      // a multiple of 16
  uint32_t subgroups = 4;  // side by side in columns
  uint32_t chunk = 64;     // of k between barriers: 64 or 128
  uint32_t ahead = 1;      // chunks of weights under way
  uint32_t groups = 0;     // workgroups to aim at by splitting k
};

struct MatrixTuning {
  MatrixPattern pattern;          // what the device's probe said
  uint32_t min_rows = 17;         // of a product on matrix units
  std::vector<MatrixTile> tiles;  // by max_rows, the last for all above
};

std::vector<MatrixTile> MatrixTiles();

}  // namespace tandem::gpu
