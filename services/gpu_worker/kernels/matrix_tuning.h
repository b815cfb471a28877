// Which matmuls run on matrix units, and in what tiles.
#pragma once

#include <cstdint>
#include <vector>

#include "services/gpu_worker/kernels/fragment_layout.h"

namespace tandem::gpu {

// Work of a workgroup of coop_matmul.comp.
struct MatrixTile {
  // A matmul takes the first tile that fits it.
  uint32_t max_rows = ~0u;   // of x
  uint32_t min_columns = 0;  // rows of weights
  uint32_t min_bits = 0;     // of a weight, without its scale
  uint32_t columns = 32;     // of a subgroup: 16, 32 or 64
  uint32_t rows = 32;        // a multiple of 16
  uint32_t subgroups = 4;    // side by side in columns
  uint32_t chunk = 64;       // of k between barriers: 64 or 128
  uint32_t groups = 1;       // workgroups that run at once; split-K fills them
};

struct MatrixTuning {
  FragmentLayout fragments;  // from the device's probe
  bool narrow = false;    // from its probe: has the matrices of eight columns of coop_matvec.comp
  uint32_t min_rows = 5;  // of a matmul on matrix units
  // Rows of a matmul on matrices of eight columns, coop_matvec.comp.
  uint32_t narrow_min_rows = 5;
  uint32_t narrow_max_rows = 32;
  uint32_t narrow_groups = 528;   // its workgroups that run at once; split-K fills them
  std::vector<MatrixTile> tiles;  // the last fits all
};

std::vector<MatrixTile> MatrixTiles();

}  // namespace tandem::gpu
