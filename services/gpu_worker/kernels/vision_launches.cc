#include "services/gpu_worker/kernels/vision_launches.h"

#include <algorithm>

#include "services/common/base/check.h"
#include "services/gpu_worker/kernels/push_constants.h"
#include "services/gpu_worker/kernels/spirv.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

using spirv::ConstantId;

constexpr uint32_t kFormat = ConstantId("OUT_FORMAT", {shaders::kCutPatches, shaders::kAddLayerNorm,
                                                       shaders::kBiasGelu, shaders::kPoolPatches});
constexpr uint32_t kPatch = ConstantId("PATCH", {shaders::kCutPatches});
constexpr uint32_t kHeld = ConstantId("HELD", {shaders::kAddLayerNorm});
constexpr uint32_t kHeadDim = ConstantId("HEAD_DIM", {shaders::kSplitHeads});
constexpr uint32_t kPool = ConstantId("POOL", {shaders::kPoolPatches});

// Threads of a workgroup that takes a row of `cols`, four at a time: the fewest that need as few
// rounds as norm_threads do.
uint32_t RowThreads(const Tuning& tuning, uint32_t cols) {
  const uint32_t rounds = DivideUp(cols, uint64_t{tuning.norm_threads} * 4);
  const uint32_t whole = tuning.subgroup_size;
  return std::min(DivideUp(cols, uint64_t{rounds} * 4 * whole) * whole, tuning.norm_threads);
}

uint32_t FormatNumber(ActivationFormat format) {
  TANDEM_CHECK(format == ActivationFormat::kF32 || format == ActivationFormat::kF16);
  return static_cast<uint32_t>(format);
}

}  // namespace

Launch CutPatchesLaunch(const Tuning& tuning, const CutPatchesArgs& args) {
  TANDEM_CHECK(args.patch_size != 0 && args.image_size % args.patch_size == 0);
  TANDEM_CHECK(args.stride % 4 == 0 && args.stride >= 3 * args.patch_size * args.patch_size);
  const CutPatchesPush push = {.pixels = args.pixels,
                               .destination = args.destination,
                               .image_size = args.image_size,
                               .stride = args.stride};
  const uint32_t side = args.image_size / args.patch_size;
  Launch launch =
      MakeLaunch(KernelId::kCutPatches, RowThreads(tuning, args.stride), push, side * side, 1);
  launch.constants[kFormat] = FormatNumber(args.format);
  launch.constants[kPatch] = args.patch_size;
  return launch;
}

Launch AddLayerNormLaunch(const Tuning& tuning, const AddLayerNormArgs& args) {
  TANDEM_CHECK(args.cols % 4 == 0);
  constexpr uint32_t kMostRows = 4;   // of a workgroup, a subgroup each
  constexpr uint32_t kMostHeld = 16;  // pieces of a row that a lane holds: more would spill
  const uint32_t rows = std::clamp(tuning.norm_threads / tuning.subgroup_size, 1u, kMostRows);
  const AddLayerNormPush push = {.source = args.source,
                                 .bias = args.bias,
                                 .residual = args.residual,
                                 .updated = args.updated,
                                 .weight = args.weight,
                                 .norm_bias = args.norm_bias,
                                 .normed = args.normed,
                                 .cols = args.cols,
                                 .rows = args.rows,
                                 .epsilon = args.epsilon};
  Launch launch = MakeLaunch(KernelId::kAddLayerNorm, rows * tuning.subgroup_size, push,
                             DivideUp(args.rows, rows), 1);
  launch.constants[kFormat] = FormatNumber(args.format);
  const uint32_t held = DivideUp(args.cols, uint64_t{tuning.subgroup_size} * 4);
  launch.constants[kHeld] = held <= kMostHeld ? held : 0;
  return launch;
}

Launch SplitHeadsLaunch(const Tuning& tuning, const SplitHeadsArgs& args) {
  TANDEM_CHECK(args.head_dim % 8 == 0);
  const SplitHeadsPush push = {.sums = args.sums,
                               .q_bias = args.q_bias,
                               .k_bias = args.k_bias,
                               .v_bias = args.v_bias,
                               .q = args.q,
                               .k_cache = args.k_cache,
                               .v_cache = args.v_cache,
                               .num_heads = args.num_heads,
                               .block_tokens = args.block_tokens};
  const uint32_t cols = 3 * args.num_heads * args.head_dim;
  Launch launch = MakeLaunch(KernelId::kSplitHeads, RowThreads(tuning, cols), push, args.rows, 1);
  launch.constants[kHeadDim] = args.head_dim;
  return launch;
}

Launch BiasGeluLaunch(const Tuning& tuning, const BiasGeluArgs& args) {
  TANDEM_CHECK(args.cols % 4 == 0 && args.stride % 4 == 0 && args.stride >= args.cols);
  const BiasGeluPush push = {.source = args.source,
                             .bias = args.bias,
                             .destination = args.destination,
                             .cols = args.cols,
                             .stride = args.stride};
  Launch launch =
      MakeLaunch(KernelId::kBiasGelu, RowThreads(tuning, args.stride), push, args.rows, 1);
  launch.constants[kFormat] = FormatNumber(args.format);
  return launch;
}

Launch PoolPatchesLaunch(const Tuning& tuning, const PoolPatchesArgs& args) {
  TANDEM_CHECK(args.pool != 0 && args.side % args.pool == 0 && args.cols % 4 == 0);
  const PoolPatchesPush push = {.source = args.source,
                                .weight = args.weight,
                                .destination = args.destination,
                                .side = args.side,
                                .cols = args.cols,
                                .epsilon = args.epsilon};
  const uint32_t squares = args.side / args.pool;
  Launch launch =
      MakeLaunch(KernelId::kPoolPatches, RowThreads(tuning, args.cols), push, squares * squares, 1);
  launch.constants[kFormat] = FormatNumber(args.format);
  launch.constants[kPool] = args.pool;
  return launch;
}

}  // namespace tandem::gpu
