#include "services/gpu_worker/kernels/matrix_launches.h"

#include <algorithm>

#include "services/common/base/check.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/kernels/spirv.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

using spirv::ConstantId;

constexpr auto kKernels = {spirv::Module(shaders::kCoopMatmulShared),
                           spirv::Module(shaders::kCoopMatmulQuads),
                           spirv::Module(shaders::kCoopMatmulRows)};
constexpr uint32_t kDtype = ConstantId("WEIGHT_DTYPE", kKernels);
constexpr uint32_t kColumns = ConstantId("COLUMNS", kKernels);
constexpr uint32_t kRows = ConstantId("ROWS", kKernels);
constexpr uint32_t kSubgroups = ConstantId("SUBGROUPS", kKernels);
constexpr uint32_t kChunk = ConstantId("CHUNK", kKernels);
constexpr uint32_t kOutput = ConstantId("OUTPUT", kKernels);
constexpr uint32_t kXFormat = ConstantId("X_FORMAT", kKernels);
constexpr uint32_t kHeadDim = ConstantId("HEAD_DIM", kKernels);
constexpr uint32_t kBlockTokens = ConstantId("BLOCK_TOKENS", kKernels);
constexpr uint32_t kPairRows = ConstantId("PAIR_ROWS", kKernels);
constexpr uint32_t kPairHalves = ConstantId("PAIR_HALVES", kKernels);

// Of a weight; 4 stands for all between 4 and 6.
uint32_t BitsOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
    case DType::kBf16:
      return 16;
    case DType::kQ8_0:
      return 8;
    default:
      return 4;
  }
}

const MatrixTile& TileFor(const Tuning& tuning, const DeviceTensor& weights, uint64_t columns,
                          uint32_t max_rows) {
  for (const MatrixTile& tile : tuning.matrix.tiles) {
    if (max_rows <= tile.max_rows && columns >= tile.min_columns &&
        BitsOf(weights.dtype) >= tile.min_bits) {
      return tile;
    }
  }
  return tuning.matrix.tiles.back();
}

KernelId KernelOf(MatrixPath path) {
  switch (path) {
    case MatrixPath::kQuads:
      return KernelId::kCoopMatmulQuads;
    case MatrixPath::kRows:
      return KernelId::kCoopMatmulRows;
    default:
      return KernelId::kCoopMatmulShared;
  }
}

// The most workgroups that any number of rows takes, up to `row_tiles` tiles of them.
uint32_t MostGroups(uint32_t row_tiles, uint32_t column_tiles, const MatrixPush& push) {
  uint32_t most = 0;
  for (uint32_t r = 1; r <= row_tiles; ++r) {
    const TileSplits splits = split_tiles(r, column_tiles, push.groups, push.most_parts, push.fit);
    most = std::max(most, NumWorkgroups(r, column_tiles, splits));
  }
  return most;
}

}  // namespace

bool UsesMatrixUnits(const Tuning& tuning, DType dtype, uint32_t max_rows) {
  return tuning.matrix.fragments.path != MatrixPath::kNone && dtype != DType::kF32 &&
         max_rows >= tuning.matrix.min_rows;
}

Launch MatrixMatmulLaunch(const Tuning& tuning, const DeviceTensor& weights,
                          const DeviceShard& shard, const MatrixArgs& args) {
  TANDEM_CHECK(UsesMatrixUnits(tuning, weights.dtype, args.max_rows));
  TANDEM_CHECK(args.x_format == ActivationFormat::kF16 || args.x_format == ActivationFormat::kBf16);
  const bool is_geglu =
      args.output == MatrixOutput::kGegluF32 || args.output == MatrixOutput::kGegluF16;
  const uint64_t per_column = is_geglu ? 2 : 1;
  TANDEM_CHECK(shard.first_row % per_column == 0 && shard.num_rows % per_column == 0);
  TANDEM_CHECK(args.bias == 0 || shard.num_rows % 4 == 0);
  const MatrixTile& tile = TileFor(tuning, weights, shard.num_rows, args.max_rows);
  const uint32_t row_tiles = DivideUp(args.max_rows, tile.rows);
  const uint32_t column_tiles = DivideUp(shard.num_rows, uint64_t{tile.columns} * tile.subgroups);
  const uint64_t tile_bytes = uint64_t{tile.rows} * tile.columns * tile.subgroups * sizeof(float);
  const uint64_t fit = args.workspace.sums == 0 ? 0 : args.workspace.sums_bytes / tile_bytes;
  MatrixPush push{.count = args.count,
                  .x = args.x,
                  .destination = args.destination,
                  .workspace = args.workspace.sums,
                  .arrivals = args.workspace.arrivals,
                  .bias = args.bias,
                  .k_dim = static_cast<uint32_t>(weights.cols),
                  .n_dim = static_cast<uint32_t>(shard.num_rows),
                  .out_stride = args.out_stride,
                  .out_column = static_cast<uint32_t>(shard.first_row / per_column),
                  .first_row = args.first_row,
                  .groups = tile.groups,
                  // Each with four chunks at least.
                  .most_parts = DivideUp(weights.cols, tile.chunk) / 4,
                  .fit = static_cast<uint32_t>(fit),
                  .x_scale = args.x_scale};
  std::copy_n(shard.plane, 4, push.plane);
  Launch launch =
      MakeLaunch(KernelOf(tuning.matrix.fragments.path), 32 * tile.subgroups, push, row_tiles,
                 DivideUp(MostGroups(row_tiles, column_tiles, push), row_tiles));
  launch.constants[kDtype] = static_cast<uint32_t>(weights.dtype);
  launch.constants[kColumns] = tile.columns;
  launch.constants[kRows] = tile.rows;
  launch.constants[kSubgroups] = tile.subgroups;
  launch.constants[kChunk] = tile.chunk;
  launch.constants[kOutput] = static_cast<uint32_t>(args.output);
  if (args.x_format != ActivationFormat::kF16) {
    launch.constants[kXFormat] = static_cast<uint32_t>(args.x_format);
  }
  if (args.output == MatrixOutput::kHeadsF16) {
    TANDEM_CHECK(args.head_dim % 8 == 0 && args.out_stride % args.head_dim == 0);
    launch.constants[kHeadDim] = args.head_dim;
    launch.constants[kBlockTokens] = args.block_tokens;
  }
  launch.constants[kPairRows] = tuning.matrix.fragments.pair_rows;
  launch.constants[kPairHalves] = tuning.matrix.fragments.pair_halves;
  return launch;
}

}  // namespace tandem::gpu
