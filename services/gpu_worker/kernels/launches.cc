#include "services/gpu_worker/kernels/launches.h"

#include <algorithm>
#include <bit>

#include "services/common/base/check.h"
#include "services/common/weights/packed_tensor.h"
#include "services/gpu_worker/kernels/spirv.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

using spirv::ConstantId;

constexpr auto kMatmuls = {spirv::Module(shaders::kMatmul), spirv::Module(shaders::kTexelMatmulF32),
                           spirv::Module(shaders::kTexelMatmulF16),
                           spirv::Module(shaders::kTexelMatmulBf16)};
constexpr auto kAddNorms = {spirv::Module(shaders::kAddNorm),
                            spirv::Module(shaders::kAddNormTexels),
                            spirv::Module(shaders::kAddNormWide)};
constexpr uint32_t kEmbedDtype = ConstantId("WEIGHT_DTYPE", {shaders::kEmbed});
constexpr uint32_t kEmbedPictures = ConstantId("PICTURES", {shaders::kEmbed});
constexpr uint32_t kGather = ConstantId("GATHER", {shaders::kRmsNorm});
constexpr uint32_t kRmsNormFormat = ConstantId("OUT_FORMAT", {shaders::kRmsNorm});
constexpr uint32_t kAddSplitK = ConstantId("SPLIT_K", {shaders::kAddSplitK});
constexpr uint32_t kPoolColumns = ConstantId("COLUMNS", {shaders::kPool});
constexpr uint32_t kAddNormFormat = ConstantId("OUT_FORMAT", kAddNorms);
constexpr uint32_t kAddNormRows = ConstantId("ROWS", kAddNorms);
constexpr uint32_t kAddNormSplitK = ConstantId("SPLIT_K", {shaders::kAddNormWide});
constexpr uint32_t kAddNormHeld = ConstantId("HELD", {shaders::kAddNormWide});
constexpr uint32_t kMatmulDtype = ConstantId("WEIGHT_DTYPE", kMatmuls);
constexpr uint32_t kMatmulRows = ConstantId("ROWS", kMatmuls);
constexpr uint32_t kMatmulColumns = ConstantId("COLUMNS", kMatmuls);
constexpr uint32_t kMatmulXFormat = ConstantId("X_FORMAT", {shaders::kMatmul});
constexpr uint32_t kMatmulGeglu = ConstantId("GEGLU", {shaders::kMatmul});
constexpr uint32_t kHeadMasked =
    ConstantId("MASKED", {shaders::kHeadSlice, shaders::kHeadSliceTexels, shaders::kHeadMerge});
constexpr uint32_t kTexelMatmulGeglu = ConstantId(
    "GEGLU", {shaders::kTexelMatmulF32, shaders::kTexelMatmulF16, shaders::kTexelMatmulBf16});

// The fewest threads that hold a row in as few pieces as the most threads do: idle ones only wait.
uint32_t WideNormThreads(const Tuning& tuning, uint32_t cols) {
  const uint32_t held = DivideUp(cols, uint64_t{tuning.wide_norm_threads} * 4);
  const uint32_t whole = std::max(32u, tuning.subgroup_size);
  return std::min(DivideUp(cols, uint64_t{held} * 4 * whole) * whole, tuning.wide_norm_threads);
}

// The texel of x, four elements, and the form of texel_matmul.comp that reads it.
VkFormat XTexel(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kF16:
      return VK_FORMAT_R16G16B16A16_SFLOAT;
    case ActivationFormat::kBf16:
      return VK_FORMAT_R16G16B16A16_UINT;
    default:
      return VK_FORMAT_R32G32B32A32_SFLOAT;
  }
}
KernelId TexelMatmulOf(ActivationFormat format) {
  switch (format) {
    case ActivationFormat::kF16:
      return KernelId::kTexelMatmulF16;
    case ActivationFormat::kBf16:
      return KernelId::kTexelMatmulBf16;
    default:
      return KernelId::kTexelMatmulF32;
  }
}

// What texel_matmul.comp reads; nothing where texel buffers cannot hold it.
std::optional<vulkan::TexelViews> PlainMatmulTexels(const Tuning& tuning,
                                                    const DeviceTensor& weights,
                                                    const DeviceShard& shard,
                                                    const PlainMatmulArgs& args) {
  constexpr uint64_t kTexelBytes = 16;
  const uint64_t x_texels = uint64_t{args.max_rows} * weights.cols / 4;
  if (x_texels > tuning.max_texels) return std::nullopt;
  vulkan::TexelViews views;
  views[0] = {args.x, ActivationBytes(args.x_format, args.max_rows, weights.cols),
              XTexel(args.x_format)};
  const std::vector<Plane> planes = PlanesOf(weights.dtype, shard.num_rows, weights.cols);
  for (size_t p = 0; p + 1 < views.size(); ++p) {
    const size_t plane = p < planes.size() ? p : 0;  // those the format lacks: bound, not read
    const uint64_t bytes = uint64_t{DivideUp(shard.num_rows, kTileRows)} *
                           planes[plane].pieces_per_row * planes[plane].piece.stride();
    if (bytes / kTexelBytes > tuning.max_texels) return std::nullopt;
    views[p + 1] = {shard.plane[plane], bytes, VK_FORMAT_R32G32B32A32_UINT};
  }
  return views;
}

}  // namespace

const KernelTraits& Traits(KernelId id) {
  static constexpr KernelTraits kKernels[kNumKernels] = {
      {"embed", shaders::kEmbed},
      {"copy_rows", shaders::kCopyRows},
      {"copy_pages", shaders::kCopyPages},
      {"add_split_k", shaders::kAddSplitK},
      {"pool", shaders::kPool},
      {"rms_norm", shaders::kRmsNorm},
      {"add_norm", shaders::kAddNorm},
      {"add_norm_texels", shaders::kAddNormTexels},
      {"add_norm_wide", shaders::kAddNormWide},
      {"matmul", shaders::kMatmul},
      {"matvec", shaders::kMatvec},
      {"texel_matmul_f32", shaders::kTexelMatmulF32},
      {"texel_matmul_f16", shaders::kTexelMatmulF16},
      {"texel_matmul_bf16", shaders::kTexelMatmulBf16},
      {"coop_matvec", shaders::kCoopMatvec},
      {"qk_norm_rope", shaders::kQkNormRope},
      {"qk_norm_rope_texels", shaders::kQkNormRopeTexels},
      {"kv_append", shaders::kKvAppend},
      {"attention", shaders::kAttention},
      {"attention_texels", shaders::kAttentionTexels},
      {"decode", shaders::kDecode},
      {"tiled", shaders::kTiled},
      {"tiled_cooperative", shaders::kTiledCooperative},
      {"tiled_quads", shaders::kTiledQuads},
      {"tiled_rows", shaders::kTiledRows},
      {"chains", shaders::kChains},
      {"head_slice", shaders::kHeadSlice},
      {"head_slice_texels", shaders::kHeadSliceTexels},
      {"head_merge", shaders::kHeadMerge},
      {"cut_patches", shaders::kCutPatches},
      {"add_layer_norm", shaders::kAddLayerNorm},
      {"split_heads", shaders::kSplitHeads},
      {"bias_gelu", shaders::kBiasGelu},
      {"pool_patches", shaders::kPoolPatches},
      {"coop_matmul_shared", shaders::kCoopMatmulShared},
      {"coop_matmul_quads", shaders::kCoopMatmulQuads},
      {"coop_matmul_rows", shaders::kCoopMatmulRows},
      {"coop_probe", shaders::kCoopProbe},
      {"narrow_probe", shaders::kNarrowProbe},
  };
  return kKernels[static_cast<int>(id)];
}

Launch EmbedLaunch(const Tuning& tuning, const DeviceTensor& table, const DeviceShard& shard,
                   const EmbedArgs& args) {
  EmbedPush push{.step = args.step,
                 .destination = args.destination,
                 .guesses = args.guesses,
                 .soft_tokens = args.soft_tokens,
                 .first_token = static_cast<uint32_t>(shard.first_row),
                 .num_tokens = static_cast<uint32_t>(shard.num_rows),
                 .cols = static_cast<uint32_t>(table.cols),
                 .scale = args.scale};
  std::copy_n(shard.plane, 4, push.plane);
  Launch launch = MakeLaunch(KernelId::kEmbed, tuning.norm_threads, push, args.max_rows, 1);
  launch.constants[kEmbedDtype] = static_cast<uint32_t>(table.dtype);
  if (args.soft_tokens != 0) launch.constants[kEmbedPictures] = 1;
  return launch;
}

Launch CopyRowsLaunch(const Tuning& tuning, const CopyRowsPush& push, uint32_t max_rows) {
  return MakeLaunch(KernelId::kCopyRows, tuning.norm_threads, push, DivideUp(push.cols, kCopyPiece),
                    max_rows);
}

Launch CopyPagesLaunch(const Tuning& tuning, uint64_t table, uint32_t num_pages,
                       uint64_t page_bytes) {
  constexpr uint32_t kMostPages = 65535;  // workgroups side by side that every device takes
  TANDEM_CHECK(num_pages > 0 && page_bytes > 0 && page_bytes % 16 == 0);
  const CopyPagesPush push = {
      .table = table, .num_pages = num_pages, .units = static_cast<uint32_t>(page_bytes / 16)};
  return MakeLaunch(KernelId::kCopyPages, tuning.norm_threads, push,
                    DivideUp(push.units, uint64_t{tuning.norm_threads} * kPageTurns),
                    std::min(num_pages, kMostPages));
}

Launch AddSplitKLaunch(const Tuning& tuning, const AddSplitKPush& push, uint32_t split_k,
                       uint32_t max_rows) {
  Launch launch = MakeLaunch(KernelId::kAddSplitK, tuning.norm_threads, push, max_rows, 1);
  launch.constants[kAddSplitK] = split_k;
  return launch;
}

Launch PoolLaunch(const Tuning& tuning, const PoolPush& push, uint32_t max_pooled) {
  constexpr uint32_t kMostColumns = 16;  // 256 bytes of a row side by side
  const uint32_t threads = std::bit_floor(std::min(tuning.reduce_threads, kMaxPoolThreads));
  const uint32_t columns = std::min(threads, kMostColumns);
  Launch launch = MakeLaunch(KernelId::kPool, threads, push,
                             DivideUp(push.cols, uint64_t{columns} * 4), max_pooled);
  launch.constants[kPoolColumns] = columns;
  return launch;
}

Launch RmsNormLaunch(const Tuning& tuning, const RmsNormPush& push, bool gather, uint32_t max_rows,
                     ActivationFormat format) {
  const uint32_t threads =
      AddsSplitK(tuning, push.cols) ? WideNormThreads(tuning, push.cols) : tuning.norm_threads;
  Launch launch = MakeLaunch(KernelId::kRmsNorm, threads, push, max_rows, 1);
  launch.constants[kGather] = gather ? 1 : 0;
  launch.constants[kRmsNormFormat] = static_cast<uint32_t>(format);
  return launch;
}

bool AddsSplitK(const Tuning& tuning, uint32_t cols) {
  constexpr uint32_t kMostHeld = 8;  // pieces of a row that a thread holds: more would spill
  return cols <= kMostHeld * tuning.wide_norm_threads * 4;
}

Launch AddNormLaunch(const Tuning& tuning, const AddNormPush& push, uint32_t max_rows,
                     ActivationFormat format, uint32_t split_k, NormRows rows) {
  if (!AddsSplitK(tuning, push.cols)) {
    TANDEM_CHECK(split_k == 1);
    Launch launch = MakeLaunch(KernelId::kAddNorm, tuning.norm_threads, push, max_rows, 1);
    launch.constants[kAddNormFormat] = static_cast<uint32_t>(format);
    launch.constants[kAddNormRows] = static_cast<uint32_t>(rows);
    const uint64_t row_bytes = uint64_t{push.cols} * 4, bytes = max_rows * row_bytes;
    // Of outputs' rows there are few, and they lie anywhere in a step's.
    if (rows == NormRows::kStep && bytes / 16 <= tuning.max_texels) {
      constexpr VkFormat kTexel = VK_FORMAT_R32G32B32A32_SFLOAT;
      const uint64_t next = push.next_weight == 0 ? push.weight : push.next_weight;
      launch.kernel = KernelId::kAddNormTexels;
      launch.texels = Bind({{push.source, bytes, kTexel},
                            {push.weight, row_bytes, kTexel},
                            {push.residual, bytes, kTexel},
                            {next, row_bytes, kTexel}});
    }
    return launch;
  }
  const uint32_t threads = WideNormThreads(tuning, push.cols);
  Launch launch = MakeLaunch(KernelId::kAddNormWide, threads, push, max_rows, 1);
  launch.constants[kAddNormFormat] = static_cast<uint32_t>(format);
  launch.constants[kAddNormSplitK] = split_k;
  launch.constants[kAddNormHeld] = DivideUp(push.cols, threads * 4);
  launch.constants[kAddNormRows] = static_cast<uint32_t>(rows);
  return launch;
}

Launch PlainMatmulLaunch(const Tuning& tuning, const DeviceTensor& weights,
                         const DeviceShard& shard, const PlainMatmulArgs& args) {
  const uint64_t per_column = args.geglu ? 2 : 1;
  TANDEM_CHECK(shard.first_row % per_column == 0 && shard.num_rows % per_column == 0);
  TANDEM_CHECK(args.x_format != ActivationFormat::kInt8 &&
               args.x_format != ActivationFormat::kFragments);
  const uint32_t rows = std::min(std::bit_floor(args.max_rows), tuning.matmul_rows);
  const uint32_t local = tuning.subgroup_size * tuning.matmul_subgroups;
  const uint32_t groups_x = DivideUp(shard.num_rows, uint64_t{local} * tuning.matmul_columns);
  const uint32_t groups_y = DivideUp(args.max_rows, rows);
  if (const auto texels = PlainMatmulTexels(tuning, weights, shard, args)) {
    const TexelMatmulPush push{.count = args.count,
                               .destination = args.destination,
                               .k_dim = static_cast<uint32_t>(weights.cols),
                               .n_dim = static_cast<uint32_t>(shard.num_rows),
                               .out_stride = args.out_stride,
                               .out_column = static_cast<uint32_t>(shard.first_row / per_column),
                               .first_row = args.first_row};
    Launch launch = MakeLaunch(TexelMatmulOf(args.x_format), local, push, groups_x, groups_y);
    launch.texels = texels;
    launch.constants[kMatmulDtype] = static_cast<uint32_t>(weights.dtype);
    launch.constants[kMatmulRows] = rows;
    launch.constants[kMatmulColumns] = tuning.matmul_columns;
    launch.constants[kTexelMatmulGeglu] = args.geglu ? 1 : 0;
    return launch;
  }
  MatmulPush push{.count = args.count,
                  .x = args.x,
                  .destination = args.destination,
                  .k_dim = static_cast<uint32_t>(weights.cols),
                  .n_dim = static_cast<uint32_t>(shard.num_rows),
                  .out_stride = args.out_stride,
                  .out_column = static_cast<uint32_t>(shard.first_row / per_column),
                  .first_row = args.first_row};
  std::copy_n(shard.plane, 4, push.plane);
  Launch launch = MakeLaunch(KernelId::kMatmul, local, push, groups_x, groups_y);
  launch.constants[kMatmulDtype] = static_cast<uint32_t>(weights.dtype);
  launch.constants[kMatmulRows] = rows;
  launch.constants[kMatmulColumns] = tuning.matmul_columns;
  launch.constants[kMatmulXFormat] = static_cast<uint32_t>(args.x_format);
  launch.constants[kMatmulGeglu] = args.geglu ? 1 : 0;
  return launch;
}

HeadSlices SlicesOf(uint32_t vocab_size) {
  const uint32_t length = kHeadSlice * DivideUp(vocab_size, uint64_t{kHeadSlice} * kMostHeadSlices);
  return {.length = length, .count = DivideUp(vocab_size, length)};
}

std::array<Launch, 2> HeadReduceLaunches(const Tuning& tuning, const HeadReduceArgs& args,
                                         uint32_t max_rows) {
  const HeadSlices slices = SlicesOf(args.vocab_size);
  const uint32_t stride = LogitStride(args.vocab_size);
  std::array<Launch, 2> launches = {MakeLaunch(KernelId::kHeadSlice, tuning.reduce_threads,
                                               HeadSlicePush{.step = args.step,
                                                             .logits = args.logits,
                                                             .slices = args.slices,
                                                             .masks = args.masks,
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
                                                             .guesses = args.guesses,
                                                             .guessed = args.guessed,
                                                             .vocab_size = args.vocab_size,
                                                             .logit_stride = stride,
                                                             .num_slices = slices.count,
                                                             .first_output = args.first_output},
                                               max_rows, 1)};
  for (Launch& launch : launches) launch.constants[kHeadMasked] = args.masks != 0 ? 1 : 0;
  const uint64_t logits = uint64_t{max_rows} * stride;
  if (logits <= tuning.max_texels) {
    launches[0].kernel = KernelId::kHeadSliceTexels;
    launches[0].texels = Bind({{args.logits, logits * 4, VK_FORMAT_R32_UINT}});
  }
  return launches;
}

}  // namespace tandem::gpu
