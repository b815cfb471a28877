#include "services/gpu_worker/kernels/launches.h"

#include <algorithm>
#include <bit>

#include "services/common/base/check.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

// Constant ids, as in the shaders.
constexpr uint32_t kDtype = 3;   // embed, matmul
constexpr uint32_t kGather = 3;  // rms_norm
constexpr uint32_t kAddSlicesSlices = 3;
constexpr uint32_t kRmsNormFormat = 4;
constexpr uint32_t kAddNormFormat = 3;
constexpr uint32_t kAddNormSlices = 4;
constexpr uint32_t kAddNormHeld = 5;
constexpr uint32_t kMatmulRows = 4;
constexpr uint32_t kMatmulColumns = 5;
constexpr uint32_t kMatmulXF16 = 6;
constexpr uint32_t kMatmulGeglu = 7;

constexpr uint32_t kCopyPiece = 2048;  // copy_rows.comp

// The fewest threads that hold a row in as few pieces as the most threads do: idle ones only wait.
uint32_t WideNormThreads(const Tuning& tuning, uint32_t cols) {
  const uint32_t held = DivideUp(cols, uint64_t{tuning.wide_norm_threads} * 4);
  const uint32_t whole = std::max(32u, tuning.subgroup_size);
  return std::min(DivideUp(cols, uint64_t{held} * 4 * whole) * whole, tuning.wide_norm_threads);
}

}  // namespace

const KernelTraits& Traits(KernelId id) {
  static constexpr KernelTraits kKernels[kNumKernels] = {
      {"embed", shaders::kEmbed},
      {"copy_rows", shaders::kCopyRows},
      {"add_slices", shaders::kAddSlices},
      {"rms_norm", shaders::kRmsNorm},
      {"add_norm", shaders::kAddNorm},
      {"add_norm_wide", shaders::kAddNormWide},
      {"matmul", shaders::kMatmul},
      {"matvec", shaders::kMatvec},
      {"qk_norm_rope", shaders::kQkNormRope},
      {"kv_append", shaders::kKvAppend},
      {"attention", shaders::kAttention},
      {"decode", shaders::kDecode},
      {"tiled", shaders::kTiled},
      {"tiled_cooperative", shaders::kTiledCooperative},
      {"head_slice", shaders::kHeadSlice},
      {"head_merge", shaders::kHeadMerge},
      {"coop_matmul_shared", shaders::kCoopMatmulShared},
      {"coop_matmul_quads", shaders::kCoopMatmulQuads},
      {"coop_matmul_rows", shaders::kCoopMatmulRows},
      {"coop_probe", shaders::kCoopProbe},
  };
  return kKernels[static_cast<int>(id)];
}

Launch EmbedLaunch(const Tuning& tuning, const DeviceTensor& table, const DeviceShard& shard,
                   uint64_t step, uint64_t destination, float scale, uint32_t max_rows) {
  EmbedPush push{.step = step,
                 .destination = destination,
                 .first_token = static_cast<uint32_t>(shard.first_row),
                 .num_tokens = static_cast<uint32_t>(shard.num_rows),
                 .cols = static_cast<uint32_t>(table.cols),
                 .scale = scale};
  std::copy_n(shard.plane, 4, push.plane);
  Launch launch = MakeLaunch(KernelId::kEmbed, tuning.norm_threads, push, max_rows, 1);
  launch.constants[kDtype] = static_cast<uint32_t>(table.dtype);
  return launch;
}

Launch CopyRowsLaunch(const Tuning& tuning, const CopyRowsPush& push, uint32_t max_rows) {
  return MakeLaunch(KernelId::kCopyRows, tuning.norm_threads, push, DivideUp(push.cols, kCopyPiece),
                    max_rows);
}

Launch AddSlicesLaunch(const Tuning& tuning, const AddSlicesPush& push, uint32_t slices,
                       uint32_t max_rows) {
  Launch launch = MakeLaunch(KernelId::kAddSlices, tuning.norm_threads, push, max_rows, 1);
  launch.constants[kAddSlicesSlices] = slices;
  return launch;
}

Launch RmsNormLaunch(const Tuning& tuning, const RmsNormPush& push, bool gather, uint32_t max_rows,
                     ActivationFormat format) {
  const uint32_t threads =
      AddsSlices(tuning, push.cols) ? WideNormThreads(tuning, push.cols) : tuning.norm_threads;
  Launch launch = MakeLaunch(KernelId::kRmsNorm, threads, push, max_rows, 1);
  launch.constants[kGather] = gather ? 1 : 0;
  launch.constants[kRmsNormFormat] = static_cast<uint32_t>(format);
  return launch;
}

bool AddsSlices(const Tuning& tuning, uint32_t cols) {
  constexpr uint32_t kMostHeld = 8;  // pieces of a row that a thread holds: more would spill
  return cols <= kMostHeld * tuning.wide_norm_threads * 4;
}

Launch AddNormLaunch(const Tuning& tuning, const AddNormPush& push, uint32_t max_rows,
                     ActivationFormat format, uint32_t slices) {
  if (!AddsSlices(tuning, push.cols)) {
    TANDEM_CHECK(slices == 1);
    Launch launch = MakeLaunch(KernelId::kAddNorm, tuning.norm_threads, push, max_rows, 1);
    launch.constants[kAddNormFormat] = static_cast<uint32_t>(format);
    return launch;
  }
  const uint32_t threads = WideNormThreads(tuning, push.cols);
  Launch launch = MakeLaunch(KernelId::kAddNormWide, threads, push, max_rows, 1);
  launch.constants[kAddNormFormat] = static_cast<uint32_t>(format);
  launch.constants[kAddNormSlices] = slices;
  launch.constants[kAddNormHeld] = DivideUp(push.cols, threads * 4);
  return launch;
}

Launch MatmulLaunch(const Tuning& tuning, const DeviceTensor& weights, const DeviceShard& shard,
                    const MatmulArgs& args) {
  const uint64_t per_column = args.geglu ? 2 : 1;
  TANDEM_CHECK(shard.first_row % per_column == 0 && shard.num_rows % per_column == 0);
  MatmulPush push{.count = args.count,
                  .x = args.x,
                  .destination = args.destination,
                  .k_dim = static_cast<uint32_t>(weights.cols),
                  .n_dim = static_cast<uint32_t>(shard.num_rows),
                  .out_stride = args.out_stride,
                  .out_column = static_cast<uint32_t>(shard.first_row / per_column),
                  .first_row = args.first_row};
  std::copy_n(shard.plane, 4, push.plane);
  const uint32_t rows = std::min(std::bit_floor(args.max_rows), tuning.matmul_rows);
  const uint32_t local = tuning.subgroup_size * tuning.matmul_subgroups;
  const uint64_t columns = uint64_t{local} * tuning.matmul_columns;
  Launch launch = MakeLaunch(KernelId::kMatmul, local, push, DivideUp(shard.num_rows, columns),
                             DivideUp(args.max_rows, rows));
  launch.constants[kDtype] = static_cast<uint32_t>(weights.dtype);
  launch.constants[kMatmulRows] = rows;
  launch.constants[kMatmulColumns] = tuning.matmul_columns;
  launch.constants[kMatmulXF16] = args.x_f16 ? 1 : 0;
  launch.constants[kMatmulGeglu] = args.geglu ? 1 : 0;
  return launch;
}

HeadSlices SlicesOf(uint32_t vocab_size) {
  constexpr uint32_t kMost = 128;
  const uint32_t length = kHeadSlice * DivideUp(vocab_size, uint64_t{kHeadSlice} * kMost);
  return {.length = length, .count = DivideUp(vocab_size, length)};
}

std::array<Launch, 2> HeadReduceLaunches(const Tuning& tuning, const HeadReduceArgs& args,
                                         uint32_t max_rows) {
  const HeadSlices slices = SlicesOf(args.vocab_size);
  const uint32_t stride = LogitStride(args.vocab_size);
  return {MakeLaunch(KernelId::kHeadSlice, tuning.reduce_threads,
                     HeadSlicePush{.step = args.step,
                                   .logits = args.logits,
                                   .slices = args.slices,
                                   .vocab_size = args.vocab_size,
                                   .logit_stride = stride,
                                   .slice_len = slices.length,
                                   .first_output = args.first_output},
                     slices.count, max_rows),
          MakeLaunch(KernelId::kHeadMerge, tuning.reduce_threads,
                     HeadMergePush{.step = args.step,
                                   .logits = args.logits,
                                   .slices = args.slices,
                                   .results = args.results,
                                   .sums = args.sums,
                                   .vocab_size = args.vocab_size,
                                   .logit_stride = stride,
                                   .num_slices = slices.count,
                                   .first_output = args.first_output},
                     max_rows, 1)};
}

}  // namespace tandem::gpu
