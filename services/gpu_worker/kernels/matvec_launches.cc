#include "services/gpu_worker/kernels/matvec_launches.h"

#include <algorithm>
#include <bit>

#include "services/common/base/check.h"

namespace tandem::gpu {
namespace {

// Constant ids of matvec.comp.
constexpr uint32_t kDtype = 3;
constexpr uint32_t kWholeUnits = 4;
constexpr uint32_t kRows = 5;
constexpr uint32_t kTiles = 6;
constexpr uint32_t kSlices = 7;
constexpr uint32_t kXFormat = 8;
constexpr uint32_t kGeglu = 9;
constexpr uint32_t kOutFormat = 10;
constexpr uint32_t kLanes = 11;
constexpr uint32_t kParts = 12;

constexpr uint32_t kTileRows = 32;
constexpr uint32_t kTeamThreads = 32;

bool IsFloat(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBf16; }

// Columns a team takes at a time: with 16-bit weights as many bytes as with 8-bit ones.
uint32_t UnitElements(DType dtype) { return IsFloat(dtype) ? 64 : kUnitElements; }

uint32_t SharedBytes(uint32_t teams, uint32_t rows, uint32_t tiles) {
  constexpr uint32_t kStagedBytes = 320;  // of a row and unit, at most
  const uint32_t at_once = std::min(8u, rows * tiles);
  return teams * rows * kStagedBytes + at_once * (teams * kTeamThreads * 4 + 64) + 1024;
}

}  // namespace

bool HasMatvec(DType dtype) { return dtype != DType::kF32; }

ActivationFormat MatvecInput(DType dtype) {
  return IsFloat(dtype) ? ActivationFormat::kF32 : ActivationFormat::kInt8;
}

MatvecShape ChooseMatvecShape(const Tuning& tuning, const DeviceTensor& weights, bool geglu,
                              bool can_split, uint32_t max_rows) {
  const uint32_t units = DivideUp(weights.cols, UnitElements(weights.dtype));
  const uint32_t tiles = DivideUp(weights.rows, kTileRows);
  // Per slice the number of teams that leaves the fewest idle in the last round, of those the
  // highest; then the fewest slices with which rounds are few and the device is full.
  MatvecShape shape;
  for (shape.slices = 1;; ++shape.slices) {
    const uint32_t share = DivideUp(units, shape.slices);
    uint32_t least = ~0u;
    for (uint32_t teams = 1; teams <= std::min(share, tuning.matvec_teams); ++teams) {
      // Teams that idle, in rounds: many rounds of few teams are as slow.
      const uint32_t rounds = DivideUp(share, teams);
      const uint32_t idle = rounds * teams - share + rounds;
      if (idle <= least) {
        least = idle;
        shape.teams = teams;
      }
    }
    const uint32_t rounds = DivideUp(share, shape.teams);
    const bool full = tiles * shape.slices * shape.teams >= tuning.matvec_full_teams;
    if ((rounds <= tuning.matvec_rounds && full) || geglu || !can_split ||
        shape.slices == kMaxSlices || rounds == 1) {
      break;
    }
  }
  shape.rows = std::min(std::bit_floor(max_rows), tuning.matvec_rows);
  shape.tiles = geglu ? 2 : 1;
  while (shape.rows > 1 &&
         SharedBytes(shape.teams, shape.rows, shape.tiles) > tuning.max_shared_bytes) {
    shape.rows /= 2;
  }
  // Many sums, and formats of many planes, leave few registers for weights on their way.
  if (shape.rows * shape.tiles >= 16) {
    shape.parts = 4;
  } else if (shape.rows >= 4 || weights.dtype == DType::kQ6_K) {
    shape.parts = 2;
  }
  return shape;
}

Launch MatvecLaunch(const Tuning& tuning, const DeviceTensor& weights, const DeviceShard& shard,
                    const MatvecShape& shape, const MatvecArgs& args) {
  const uint64_t per_column = args.geglu ? 2 : 1;
  TANDEM_CHECK(HasMatvec(weights.dtype) && weights.cols % 32 == 0);
  TANDEM_CHECK(!IsFloat(weights.dtype) || args.x_format != ActivationFormat::kInt8);
  if (args.geglu) {
    const uint32_t whole = args.out_format == ActivationFormat::kInt8 ? 2 * kTileRows : kTileRows;
    TANDEM_CHECK(shard.first_row % whole == 0 && shard.num_rows % 8 == 0);
    TANDEM_CHECK(shape.tiles % 2 == 0 && shape.slices == 1);
  }
  MatvecPush push{.count = args.count,
                  .x = args.x,
                  .destination = args.destination,
                  .k_dim = static_cast<uint32_t>(weights.cols),
                  .n_dim = static_cast<uint32_t>(shard.num_rows),
                  .out_stride = args.out_stride,
                  .out_column = static_cast<uint32_t>(shard.first_row / per_column),
                  .first_row = args.first_row,
                  .slice_stride = args.slice_stride};
  std::copy_n(shard.plane, 4, push.plane);
  Launch launch = MakeLaunch(KernelId::kMatvec, shape.teams * kTeamThreads, push,
                             DivideUp(shard.num_rows, uint64_t{kTileRows} * shape.tiles),
                             DivideUp(args.max_rows, shape.rows) * shape.slices);
  launch.constants[kDtype] = static_cast<uint32_t>(weights.dtype);
  launch.constants[kWholeUnits] = weights.cols % UnitElements(weights.dtype) == 0 ? 1 : 0;
  launch.constants[kRows] = shape.rows;
  launch.constants[kTiles] = shape.tiles;
  launch.constants[kSlices] = shape.slices;
  launch.constants[kXFormat] = static_cast<uint32_t>(args.x_format);
  launch.constants[kGeglu] = args.geglu ? 1 : 0;
  launch.constants[kOutFormat] = static_cast<uint32_t>(args.out_format);
  launch.constants[kLanes] = tuning.subgroup_size;
  launch.constants[kParts] = shape.parts;
  return launch;
}

}  // namespace tandem::gpu
