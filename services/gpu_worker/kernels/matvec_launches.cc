#include "services/gpu_worker/kernels/matvec_launches.h"

#include <algorithm>
#include <bit>

#include "services/common/base/check.h"
#include "services/gpu_worker/kernels/spirv.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

using spirv::ConstantId;

constexpr auto kBoth = {spirv::Module(shaders::kMatvec), spirv::Module(shaders::kCoopMatvec)};
constexpr uint32_t kDtype = ConstantId("WEIGHT_DTYPE", kBoth);
constexpr uint32_t kRows = ConstantId("ROWS", kBoth);
constexpr uint32_t kSplitK = ConstantId("SPLIT_K", kBoth);
constexpr uint32_t kXFormat = ConstantId("X_FORMAT", kBoth);
constexpr uint32_t kGeglu = ConstantId("GEGLU", kBoth);
constexpr uint32_t kWholeUnits = ConstantId("WHOLE_UNITS", {shaders::kMatvec});
constexpr uint32_t kTiles = ConstantId("TILES", {shaders::kMatvec});
constexpr uint32_t kOutFormat = ConstantId("OUT_FORMAT", {shaders::kMatvec});
constexpr uint32_t kLanes = ConstantId("LANES", {shaders::kMatvec});
constexpr uint32_t kParts = ConstantId("PARTS", {shaders::kMatvec});
constexpr uint32_t kNormUnits = ConstantId("NORM_UNITS", {shaders::kMatvec});
constexpr uint32_t kNormSplitK = ConstantId("NORM_SPLIT_K", {shaders::kMatvec});
constexpr uint32_t kSets = ConstantId("SETS", {shaders::kMatvec});
constexpr uint32_t kWholeChunks = ConstantId("WHOLE_CHUNKS", {shaders::kCoopMatvec});
constexpr uint32_t kNarrowOutFormat = ConstantId("OUT_FORMAT", {shaders::kCoopMatvec});
constexpr uint32_t kPairRows = ConstantId("PAIR_ROWS", {shaders::kCoopMatvec});
constexpr uint32_t kPairHalves = ConstantId("PAIR_HALVES", {shaders::kCoopMatvec});

constexpr uint32_t kTileRows = 32;
// Of a workgroup of several sets of teams: each has 128 of 65,536 registers then.
constexpr uint32_t kMostSetThreads = 512;
constexpr uint32_t kTeamThreads = 32;
constexpr uint32_t kFewRows = 2;
constexpr uint32_t kStagedBytes = 320;  // of a row and unit, at most

bool IsFloat(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBf16; }

bool HasFourBits(DType dtype) {
  return dtype == DType::kQ4_0 || dtype == DType::kIq4Nl || dtype == DType::kQ4_K;
}

// Columns a team takes at a time: with 16-bit weights as many bytes as with 8-bit ones.
uint32_t UnitElements(DType dtype) { return IsFloat(dtype) ? 64 : kUnitElements; }

uint32_t SharedBytes(uint32_t teams, uint32_t rows, uint32_t tiles) {
  const uint32_t at_once = std::min(8u, rows * tiles);
  return teams * rows * kStagedBytes + at_once * (teams * kTeamThreads * 4 + 64) + 1024;
}

// Teams of at most `most` for `share` units of k: the number that leaves the fewest idle in the
// last round, of those the highest.  `idle_weight`: how many rounds a team that idles once is worth.
uint32_t ChooseTeams(uint32_t share, uint32_t most, uint32_t idle_weight = 1) {
  uint32_t least = ~0u, best = 1;
  for (uint32_t teams = 1; teams <= std::min(share, most); ++teams) {
    // Teams that idle, in rounds: many rounds of few teams are as slow.
    const uint32_t rounds = DivideUp(share, teams);
    const uint32_t idle = idle_weight * (rounds * teams - share) + rounds;
    if (idle <= least) {
      least = idle;
      best = teams;
    }
  }
  return best;
}

struct Division {
  uint32_t most_teams, most_rounds, full_teams;
};
// Teams and split-K: the lowest split_k with few rounds and a full device.
void DivideColumns(const Division& by, uint32_t units, uint32_t tiles, bool can_split,
                   MatvecShape& shape) {
  for (shape.split_k = 1;; ++shape.split_k) {
    const uint32_t share = DivideUp(units, shape.split_k);
    shape.teams = ChooseTeams(share, by.most_teams);
    const uint32_t rounds = DivideUp(share, shape.teams);
    const bool full = uint64_t{tiles} * shape.split_k * shape.teams >= by.full_teams;
    if ((rounds <= by.most_rounds && full) || !can_split || shape.split_k == kMaxSplitK ||
        rounds == 1) {
      return;
    }
  }
}

// For coop_matvec.comp, as measured on an H200.
MatvecShape ChooseNarrowShape(const Tuning& tuning, uint32_t chunks, uint32_t tiles, bool can_split,
                              uint32_t max_rows) {
  constexpr uint32_t kRowBytes = 144;  // of shared memory, of a team's row
  constexpr uint32_t kMostTeams = 16;
  const uint32_t groups = tuning.matrix.narrow_groups;
  MatvecShape shape = {.narrow = true};
  shape.rows = std::clamp(std::bit_ceil(max_rows), 8u, 32u);
  // More rows take more registers: with these teams a processor holds as many workgroups.
  const uint32_t few_teams = shape.rows == 8 ? 7 : shape.rows == 16 ? 4 : 3;
  if (can_split) {
    // As many workgroups as run at once, each team with a chunk at least.
    const uint32_t most = std::min(kMaxSplitK, chunks / few_teams);
    shape.split_k = std::clamp(groups / tiles, 1u, std::max(most, 1u));
  }
  // Fewer workgroups have room for more teams.
  const uint32_t room = std::min(groups * few_teams / (tiles * shape.split_k), kMostTeams);
  const uint32_t fit = std::max(tuning.max_shared_bytes / (shape.rows * kRowBytes), 1u);
  shape.teams =
      ChooseTeams(DivideUp(chunks, shape.split_k), std::min(std::max(room, few_teams), fit), 2);
  return shape;
}

}  // namespace

bool HasMatvec(DType dtype) { return dtype != DType::kF32; }

bool UsesNarrowMatrices(const Tuning& tuning, DType dtype, uint32_t max_rows) {
  const MatrixTuning& matrix = tuning.matrix;
  return matrix.narrow && matrix.fragments.path == MatrixPath::kQuads && HasMatvec(dtype) &&
         max_rows >= matrix.narrow_min_rows && max_rows <= matrix.narrow_max_rows;
}

ActivationFormat MatvecInput(DType dtype) {
  return IsFloat(dtype) ? ActivationFormat::kF32 : ActivationFormat::kInt8;
}

MatvecShape ChooseMatvecShape(const Tuning& tuning, const DeviceTensor& weights, bool geglu,
                              bool can_split, uint32_t max_rows) {
  const uint32_t units = DivideUp(weights.cols, UnitElements(weights.dtype));
  const uint32_t tiles = DivideUp(weights.rows, kTileRows);
  if (UsesNarrowMatrices(tuning, weights.dtype, max_rows)) {
    return ChooseNarrowShape(tuning, DivideUp(weights.cols, kFragmentElements), tiles,
                             can_split && !geglu, max_rows);
  }
  MatvecShape shape;
  const bool few = max_rows <= kFewRows && HasFourBits(weights.dtype);
  const uint32_t rounds = few ? tuning.matvec_rounds_few : tuning.matvec_rounds;
  DivideColumns({tuning.matvec_teams, rounds, tuning.matvec_full_teams}, units, tiles,
                can_split && !geglu, shape);
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

bool CanNormInput(const Tuning& tuning, const DeviceTensor& weights, const MatvecShape& shape) {
  const uint32_t units = DivideUp(weights.cols, kUnitElements);
  const uint32_t sets = kMostSetThreads / kTeamThreads;
  const uint32_t shared_bytes =
      units * kStagedBytes + std::min(8u, shape.tiles) * (kMostSetThreads * 4 + sets * 64) + 1024;
  return !shape.narrow && !IsFloat(weights.dtype) && shape.split_k == 1 &&
         shared_bytes <= tuning.max_shared_bytes;
}

Launch MatvecLaunch(const Tuning& tuning, const DeviceTensor& weights, const DeviceShard& shard,
                    const MatvecShape& shape, const MatvecArgs& args) {
  const uint64_t per_column = args.geglu ? 2 : 1;
  TANDEM_CHECK(HasMatvec(weights.dtype) && weights.cols % 32 == 0);
  TANDEM_CHECK(!shape.narrow || args.x_format == ActivationFormat::kFragments ||
               args.x_format == ActivationFormat::kF16 || args.x_format == ActivationFormat::kBf16);
  TANDEM_CHECK(!shape.narrow || !args.geglu || args.out_format != ActivationFormat::kInt8);
  TANDEM_CHECK(!IsFloat(weights.dtype) || args.x_format != ActivationFormat::kInt8);
  if (args.geglu) {
    const uint32_t whole = args.out_format == ActivationFormat::kInt8 ? 2 * kTileRows : kTileRows;
    TANDEM_CHECK(shard.first_row % whole == 0 && shard.num_rows % 8 == 0);
    TANDEM_CHECK((shape.narrow || shape.tiles % 2 == 0) && shape.split_k == 1);
  }
  MatvecPush push{.count = args.count,
                  .x = args.x,
                  .destination = args.destination,
                  .k_dim = static_cast<uint32_t>(weights.cols),
                  .n_dim = static_cast<uint32_t>(shard.num_rows),
                  .out_stride = args.out_stride,
                  .out_column = static_cast<uint32_t>(shard.first_row / per_column),
                  .first_row = args.first_row,
                  .split_stride = args.split_stride,
                  .x_scale = args.x_scale};
  std::copy_n(shard.plane, 4, push.plane);
  if (args.norm.has_value()) {
    TANDEM_CHECK(CanNormInput(tuning, weights, shape) && args.max_rows == 1);
    push.weight = args.norm->weight;
    push.next_weight = args.norm->next_weight;
    push.residual = args.norm->residual;
    push.updated = args.norm->updated;
    push.epsilon = args.norm->epsilon;
  }
  uint32_t groups = DivideUp(shard.num_rows, uint64_t{kTileRows} * shape.tiles);
  uint32_t sets = 1;
  if (args.norm.has_value()) {
    // As many sets as a workgroup has room for, before workgroups take tiles in turn.
    const uint32_t room =
        std::min(kMostSetThreads, tuning.wide_norm_threads) / (shape.teams * kTeamThreads);
    sets = std::clamp(DivideUp(groups, tuning.norm_groups), 1u, std::max(room, 1u));
    groups = std::min(DivideUp(groups, sets), tuning.norm_groups);
  } else if (!shape.narrow && shape.tiles > 1 && groups / 2 >= tuning.matvec_groups) {
    groups = DivideUp(groups, DivideUp(groups, tuning.matvec_groups));
  }
  Launch launch = MakeLaunch(shape.narrow ? KernelId::kCoopMatvec : KernelId::kMatvec,
                             sets * shape.teams * kTeamThreads, push, groups,
                             DivideUp(args.max_rows, shape.rows) * shape.split_k);
  launch.constants[kDtype] = static_cast<uint32_t>(weights.dtype);
  launch.constants[kRows] = shape.rows;
  launch.constants[kSplitK] = shape.split_k;
  launch.constants[kXFormat] = static_cast<uint32_t>(args.x_format);
  launch.constants[kGeglu] = args.geglu ? 1 : 0;
  if (shape.narrow) {
    launch.constants[kWholeChunks] = weights.cols % kFragmentElements == 0 ? 1 : 0;
    launch.constants[kNarrowOutFormat] = static_cast<uint32_t>(args.out_format);
    launch.constants[kPairRows] = tuning.matrix.fragments.pair_rows;
    launch.constants[kPairHalves] = tuning.matrix.fragments.pair_halves;
    return launch;
  }
  launch.constants[kWholeUnits] = weights.cols % UnitElements(weights.dtype) == 0 ? 1 : 0;
  launch.constants[kTiles] = shape.tiles;
  launch.constants[kOutFormat] = static_cast<uint32_t>(args.out_format);
  launch.constants[kLanes] = tuning.subgroup_size;
  launch.constants[kParts] = shape.parts;
  if (args.norm.has_value()) {
    launch.constants[kNormUnits] = DivideUp(weights.cols, kUnitElements);
    launch.constants[kNormSplitK] = args.norm->split_k;
    launch.constants[kSets] = sets;
  }
  return launch;
}

}  // namespace tandem::gpu
