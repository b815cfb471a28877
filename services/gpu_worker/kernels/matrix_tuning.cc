#include "services/gpu_worker/kernels/matrix_tuning.h"

namespace tandem::gpu {

// Measured on an H200 (132 multiprocessors, driver 580) with tests/bench/matrix_bench, Gemma 3
// 27B's shapes; elsewhere untested.  Us a layer of q4_0 for 32, 64, 128, 2048 rows: 157, 239, 410,
// 5277.
std::vector<MatrixTile> MatrixTiles() {
  return {
      {.max_rows = 16, .min_columns = 16384, .columns = 64, .rows = 16, .groups = 528},
      {.max_rows = 16, .rows = 16, .chunk = 128, .groups = 396},
      {.max_rows = 32, .rows = 32, .chunk = 128, .groups = 264},
      {.max_rows = 64, .min_bits = 8, .rows = 64, .groups = 264},
      {.max_rows = 64, .rows = 64, .chunk = 128, .groups = 264},
      {.min_bits = 8, .rows = 128, .subgroups = 8, .groups = 132},
      {.max_rows = 128, .min_columns = 16384, .columns = 64, .rows = 64, .groups = 264},
      {.max_rows = 128, .rows = 64, .chunk = 128, .groups = 264},
      {.columns = 64, .rows = 64, .groups = 264},
  };
}

}  // namespace tandem::gpu
