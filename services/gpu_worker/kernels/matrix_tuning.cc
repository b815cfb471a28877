#include "services/gpu_worker/kernels/matrix_tuning.h"

namespace tandem::gpu {

// Measured on Hopper (132 multiprocessors); elsewhere untested.
std::vector<MatrixTile> MatrixTiles() {
  return {
      {.max_rows = 16, .columns = 32, .rows = 16, .chunk = 128, .groups = 396},
      {.max_rows = 32, .columns = 32, .rows = 32, .ahead = 2, .groups = 264},
      {.max_rows = 128, .columns = 32, .rows = 64, .subgroups = 8, .ahead = 2, .groups = 132},
      {.max_rows = 4096, .columns = 64, .rows = 64, .groups = 132},
  };
}

}  // namespace tandem::gpu
