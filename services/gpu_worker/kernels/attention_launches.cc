#include "services/gpu_worker/kernels/attention_launches.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "services/common/base/check.h"
#include "services/common/tensor/kv_format.h"
#include "services/gpu_worker/kernels/attention_step.h"
#include "services/gpu_worker/kernels/spirv.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

using spirv::ConstantId;

constexpr auto kRopes = {spirv::Module(shaders::kQkNormRope),
                         spirv::Module(shaders::kQkNormRopeTexels)};
constexpr auto kPlain = {spirv::Module(shaders::kAttention),
                         spirv::Module(shaders::kAttentionTexels)};
constexpr auto kTiles = {spirv::Module(shaders::kTiled), spirv::Module(shaders::kTiledCooperative)};
constexpr auto kPaged = {
    spirv::Module(shaders::kDecode),           spirv::Module(shaders::kTiled),
    spirv::Module(shaders::kTiledCooperative), spirv::Module(shaders::kTiledQuads),
    spirv::Module(shaders::kTiledRows),        spirv::Module(shaders::kChains)};
constexpr uint32_t kAppend = ConstantId("APPEND", kRopes);
constexpr uint32_t kRopeKvFormat = ConstantId("KV_FORMAT", kRopes);
constexpr uint32_t kRopeBf16 = ConstantId("BF16", kRopes);
constexpr uint32_t kAppendKvFormat = ConstantId("KV_FORMAT", {shaders::kKvAppend});
constexpr uint32_t kPlainHeadDim = ConstantId("HEAD_DIM", kPlain);
constexpr uint32_t kPlainQueries = ConstantId("QUERIES", kPlain);
constexpr uint32_t kPlainLanes = ConstantId("LANES", kPlain);
constexpr uint32_t kPlainKvFormat = ConstantId("KV_FORMAT", kPlain);
constexpr uint32_t kPlainPictureRows = ConstantId("PICTURE_ROWS", kPlain);
constexpr uint32_t kHeadDim = ConstantId("HEAD_DIM", kPaged);
constexpr uint32_t kQueries = ConstantId("QUERIES", kPaged);
constexpr uint32_t kBlockTokens = ConstantId("BLOCK_TOKENS", kPaged);
constexpr uint32_t kFormat = ConstantId("FORMAT", kPaged);
constexpr uint32_t kKvFormat = ConstantId("KV_FORMAT", kPaged);
constexpr uint32_t kDecodeLanes = ConstantId("LANES", {shaders::kDecode});
constexpr uint32_t kDecodeGroup = ConstantId("GROUP", {shaders::kDecode});
constexpr uint32_t kDecodeAtOnce = ConstantId("AT_ONCE", {shaders::kDecode});
constexpr uint32_t kDecodePiece = ConstantId("PIECE", {shaders::kDecode});
constexpr uint32_t kDecodeMaxPieces = ConstantId("MAX_PIECES", {shaders::kDecode});
constexpr uint32_t kDecodeFresh = ConstantId("FRESH", {shaders::kDecode});
constexpr uint32_t kTiledPositions = ConstantId(
    "POSITIONS",
    {shaders::kTiled, shaders::kTiledCooperative, shaders::kTiledQuads, shaders::kTiledRows});
constexpr uint32_t kTiledRowsAhead = ConstantId("AHEAD", {shaders::kTiledRows});
constexpr uint32_t kTiledParts = ConstantId("PARTS", {shaders::kTiledRows});
constexpr uint32_t kTiledAhead = ConstantId("AHEAD", kTiles);
constexpr uint32_t kTiledRowBlocks = ConstantId("ROW_BLOCKS", kTiles);
constexpr auto kQuads = {spirv::Module(shaders::kTiledQuads), spirv::Module(shaders::kChains)};
constexpr uint32_t kPairRows = ConstantId("PAIR_ROWS", kQuads);
constexpr uint32_t kPairHalves = ConstantId("PAIR_HALVES", kQuads);
constexpr uint32_t kSumPairRows = ConstantId("SUM_PAIR_ROWS", kQuads);
constexpr uint32_t kSumPairHalves = ConstantId("SUM_PAIR_HALVES", kQuads);

constexpr uint32_t kChainsMostRows = ConstantId("MOST_ROWS", {shaders::kChains});

// Of chains.comp: four subgroups, each with 16 positions at a time; rows of a chain.
constexpr uint32_t kChainsThreads = 128, kChainsQueries = 2, kChainRows = kLongRows - 1;
static_assert(kChainRows * kChainsQueries <= 16, "the pairs of a workgroup");

// Pairs of rows and query heads of a step up to which decode.comp is faster than tiled_quads.comp (TileRulesOf).
constexpr uint32_t kDecodedPairs = 512;

// Query heads of one KV head that a workgroup takes, at most `most`.
uint32_t QueriesAtOnce(uint32_t ratio, uint32_t most) {
  uint32_t queries = std::min(ratio, most);
  while (ratio % queries != 0) --queries;
  return queries;
}

KvFormat FormatOf(DType dtype, uint32_t head_dim) {
  TANDEM_CHECK(IsKvDType(dtype) && CheckKvHeads(dtype, head_dim).ok());
  return dtype == DType::kQ8_0 ? KvFormat::kQ8_0 : KvFormat::kF16;
}

// Positions of tiled_quads.comp that fit in shared memory, K and V twice; 0: it does not serve.
uint32_t QuadPositions(const Tuning& tuning, uint32_t head_dim) {
  const bool enabled = tuning.tiled.cooperative && tuning.tiled.quads != 0;
  if (!enabled || !tuning.matrix.fragments.sums_in_quads) return 0;
  for (const uint32_t positions : {32u, 16u}) {
    if (4 * positions * (2 * DivideUp(head_dim, 16) + 1) * 16 <= tuning.max_shared_bytes) {
      return positions;
    }
  }
  return 0;
}

void SetFragmentLayout(const FragmentLayout& layout, Launch& launch) {
  launch.constants[kPairRows] = layout.pair_rows;
  launch.constants[kPairHalves] = layout.pair_halves;
  launch.constants[kSumPairRows] = layout.sum_pair_rows;
  launch.constants[kSumPairHalves] = layout.sum_pair_halves;
}

// Makes the shape tiled_rows.comp's where that serves and fits in shared memory.
void TakeRows(const Tuning& tuning, uint32_t head_dim, TiledShape& shape) {
  const TiledTuning& tiled = tuning.tiled;
  if (!tiled.cooperative || tiled.rows == 0 || !tuning.matrix.fragments.sums_in_columns) return;
  const uint32_t parts = head_dim > tiled.part_dims ? 2 : 1;
  const uint32_t steps = parts == 1 ? DivideUp(head_dim, 16) : DivideUp(head_dim, 64) * 4;
  const uint32_t subgroups = shape.pairs / 16 * parts;
  for (const uint32_t positions : {32u, 16u}) {
    const uint32_t k_words = positions * (2 * steps + 1);
    const uint32_t v_words = steps * (16 * (positions / 8 + 1) + 2);
    const uint32_t score_words = parts == 1 ? 0 : subgroups * positions * 4;
    const uint32_t words = std::max(k_words + v_words + score_words, subgroups * 16 * 5);
    if (words * 16 > tuning.max_shared_bytes) continue;
    shape.kernel = KernelId::kTiledRows;
    shape.positions = positions;
    shape.parts = parts;
    return;
  }
}

}  // namespace

Launch QkNormRopeAppendLaunch(const Tuning& tuning, const QkNormRopePush& push, DType kv_dtype,
                              uint32_t max_rows) {
  Launch launch = QkNormRopeLaunch(tuning, push, max_rows);
  launch.constants[kAppend] = 1;
  launch.constants[kRopeKvFormat] = static_cast<uint32_t>(FormatOf(kv_dtype, push.head_dim));
  return launch;
}

Launch QkNormRopeLaunch(const Tuning& tuning, const QkNormRopePush& push, uint32_t max_rows,
                        DType port_dtype) {
  TANDEM_CHECK(port_dtype == DType::kF16 || port_dtype == DType::kBf16);
  Launch launch = MakeLaunch(KernelId::kQkNormRope, tuning.subgroup_size, push,
                             push.num_heads + 2 * push.num_kv_heads, max_rows);
  const uint64_t head_bytes = uint64_t{push.head_dim} * 4;
  const uint64_t bytes = max_rows * (push.num_heads + 2 * push.num_kv_heads) * head_bytes;
  if (bytes / 16 <= tuning.max_texels) {
    constexpr VkFormat kTexel = VK_FORMAT_R32G32B32A32_SFLOAT;
    launch.kernel = KernelId::kQkNormRopeTexels;
    launch.texels = Bind({{push.qkv, bytes, kTexel},
                          {push.q_weight, head_bytes, kTexel},
                          {push.k_weight, head_bytes, kTexel},
                          {push.rotation, vulkan::kToTheEnd, kTexel}});
  }
  if (port_dtype == DType::kBf16) launch.constants[kRopeBf16] = 1;
  return launch;
}

Launch KvAppendLaunch(const Tuning& tuning, const KvAppendPush& push, DType kv_dtype,
                      uint32_t max_rows) {
  Launch launch =
      MakeLaunch(KernelId::kKvAppend, tuning.subgroup_size, push, push.num_kv_heads, max_rows);
  launch.constants[kAppendKvFormat] = static_cast<uint32_t>(FormatOf(kv_dtype, push.head_dim));
  return launch;
}

Launch AttentionLaunch(const Tuning& tuning, const AttentionPush& push, uint32_t head_dim,
                       DType kv_dtype, uint64_t cache_bytes, uint32_t max_rows,
                       uint32_t picture_rows) {
  const uint32_t queries =
      QueriesAtOnce(push.num_heads / push.num_kv_heads, tuning.attention_queries);
  Launch launch = MakeLaunch(KernelId::kAttention, tuning.subgroup_size, push,
                             push.num_heads / queries, max_rows);
  launch.constants[kPlainHeadDim] = head_dim;
  launch.constants[kPlainQueries] = queries;
  launch.constants[kPlainLanes] = tuning.subgroup_size;
  launch.constants[kPlainKvFormat] = static_cast<uint32_t>(FormatOf(kv_dtype, head_dim));
  launch.constants[kPlainPictureRows] = picture_rows;
  const uint64_t q_bytes = uint64_t{max_rows} * push.num_heads * head_dim * 2;
  if (kv_dtype == DType::kF16 && std::max(q_bytes, cache_bytes) / 16 <= tuning.max_texels) {
    constexpr VkFormat kTexel = VK_FORMAT_R32G32B32A32_UINT;
    launch.kernel = KernelId::kAttentionTexels;
    launch.texels = Bind({{push.q, q_bytes, kTexel},
                          {push.k_cache, cache_bytes, kTexel},
                          {push.v_cache, cache_bytes, kTexel}});
  }
  return launch;
}

DecodeShape MakeDecodeShape(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                            uint32_t head_dim) {
  const DecodeTuning& decode = tuning.decode;
  DecodeShape shape;
  const uint32_t most = std::max(1u, num_heads / decode.min_parts);
  shape.queries = QueriesAtOnce(num_heads / num_kv_heads, std::min(most, tuning.attention_queries));
  shape.parts = num_heads / shape.queries;
  const uint32_t chunks = head_dim / 8;
  const uint32_t mine = std::max(1u, decode.lane_values / (8 * shape.queries));
  const uint32_t least = std::min(decode.min_group, std::bit_ceil(chunks));
  shape.group =
      std::min(std::max(std::bit_ceil(DivideUp(chunks, mine)), least), tuning.subgroup_size);
  shape.at_once = decode.at_once;
  if (decode.chunks_ahead > 0) {
    shape.at_once =
        std::max(1u, std::bit_floor(decode.chunks_ahead / DivideUp(chunks, shape.group)));
  }
  const uint32_t tile = decode.threads / shape.group * shape.at_once;
  shape.piece = std::max(tile, std::bit_ceil(decode.piece_bytes / (head_dim * 4)));
  shape.max_pieces = std::clamp(std::bit_floor(decode.num_groups / shape.parts), 16u, 128u);
  shape.num_groups = decode.num_groups;
  return shape;
}

uint32_t DecodeShape::Slots(uint32_t max_rows, uint32_t window) const {
  // Longer pieces never increase the count, so size for the shortest.
  const uint32_t seen = window == 0 ? ~0u : DivideUp(window - 1, piece) + 1;
  return std::clamp(num_groups / (parts * max_rows), 1u, std::min(seen, max_pieces + 1));
}

Launch DecodeLaunch(const Tuning& tuning, const DecodeArgs& args) {
  const DecodeTuning& decode = tuning.decode;
  const DecodeShape shape =
      MakeDecodeShape(tuning, args.push.num_heads, args.push.num_kv_heads, args.head_dim);
  TANDEM_CHECK(args.format != ActivationFormat::kInt8 || shape.queries * args.head_dim % 32 == 0);
  DecodePush push = args.push;
  push.slots = shape.Slots(args.max_rows, push.window);
  Launch launch =
      MakeLaunch(KernelId::kDecode, decode.threads, push, shape.parts * push.slots, args.max_rows);
  launch.constants[kHeadDim] = args.head_dim;
  launch.constants[kQueries] = shape.queries;
  launch.constants[kDecodeLanes] = tuning.subgroup_size;
  launch.constants[kDecodeGroup] = shape.group;
  launch.constants[kDecodeAtOnce] = shape.at_once;
  launch.constants[kBlockTokens] = args.block_tokens;
  launch.constants[kDecodePiece] = shape.piece;
  launch.constants[kDecodeMaxPieces] = shape.max_pieces;
  launch.constants[kDecodeFresh] = args.fused ? kLongRows - 1 : 0;
  launch.constants[kFormat] = static_cast<uint32_t>(args.format);
  launch.constants[kKvFormat] = static_cast<uint32_t>(FormatOf(args.kv_dtype, args.head_dim));
  return launch;
}

TiledShape MakeTiledShape(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                          uint32_t head_dim) {
  TiledShape shape;
  if (!tuning.decode.enabled || !tuning.tiled.enabled) return shape;
  const uint32_t ratio = num_heads / num_kv_heads, positions = QuadPositions(tuning, head_dim);
  shape.queries = std::min(16u, ratio & -ratio);  // a power of two
  const bool wide = tuning.matrix.fragments.sums_in_quads && head_dim > 128;
  shape.pairs = wide ? tuning.tiled.wide_pairs : tuning.tiled.pairs;
  shape.tile_rows = shape.pairs / shape.queries;
  const uint32_t vector_bytes = (2 * DivideUp(head_dim, 16) + 1) * 16;
  const auto staged_bytes = [&] { return 2 * shape.positions * vector_bytes; };
  // Beside K and V: scores, weights and factors of every pair.
  const uint32_t exchanged_bytes =
      shape.pairs * ((shape.positions + 4) * 4 + (shape.positions / 8 + 1) * 16 + 4);
  if (positions > 0) {
    shape.kernel = KernelId::kTiledQuads;
    shape.positions = positions;
    return shape;
  }
  TakeRows(tuning, head_dim, shape);
  if (shape.kernel == KernelId::kTiledRows) return shape;
  if (tuning.tiled.cooperative && tuning.matrix.fragments.path != MatrixPath::kNone &&
      staged_bytes() + exchanged_bytes <= tuning.max_shared_bytes) {
    shape.kernel = KernelId::kTiledCooperative;
    // More sums than this do not fit in registers.
    if (head_dim <= 128) shape.row_blocks = tuning.tiled.row_blocks;
  } else if (staged_bytes() > tuning.max_shared_bytes) {
    shape.positions = 16;
  }
  return shape;
}

Launch TiledLaunch(const Tuning& tuning, const TiledArgs& args) {
  const TiledShape shape =
      MakeTiledShape(tuning, args.push.num_heads, args.push.num_kv_heads, args.head_dim);
  TANDEM_CHECK(shape.tile_rows > 0);
  TANDEM_CHECK(args.format != ActivationFormat::kInt8 || args.head_dim % 32 == 0);
  Launch launch =
      MakeLaunch(shape.kernel, shape.pairs * 2 * shape.parts / shape.row_blocks, args.push,
                 args.push.num_heads / shape.queries,
                 std::max(1u, MaxTiles(args.max_rows, shape.tile_rows, args.max_pictures)));
  launch.constants[kHeadDim] = args.head_dim;
  launch.constants[kQueries] = shape.queries;
  launch.constants[kTiledPositions] = shape.positions;
  if (shape.kernel == KernelId::kTiledQuads) {
    SetFragmentLayout(tuning.matrix.fragments, launch);
  } else if (shape.kernel == KernelId::kTiledRows) {
    launch.constants[kTiledRowsAhead] = tuning.tiled.ahead;
    launch.constants[kTiledParts] = shape.parts;
  } else {
    launch.constants[kTiledAhead] = tuning.tiled.ahead;
    launch.constants[kTiledRowBlocks] = shape.row_blocks;
  }
  launch.constants[kBlockTokens] = args.block_tokens;
  launch.constants[kFormat] = static_cast<uint32_t>(args.format);
  launch.constants[kKvFormat] = static_cast<uint32_t>(FormatOf(args.kv_dtype, args.head_dim));
  return launch;
}

bool HasChainsKernel(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                     uint32_t head_dim) {
  if (head_dim != 64 && head_dim != 128) return false;
  const TiledShape tiles = MakeTiledShape(tuning, num_heads, num_kv_heads, head_dim);
  if (tiles.kernel != KernelId::kTiledQuads || tiles.tile_rows < kChainRows) return false;
  // K and V of its positions, vectors of the rows, totals.
  const uint32_t vectors = 2 * kChainsThreads / 2 + (kChainsQueries + 2) * kChainRows;
  return vectors * (head_dim / 8 + 1) * 16 + kChainsThreads / 2 * 8 <= tuning.max_shared_bytes;
}

TileRules TileRulesOf(const Tuning& tuning, uint32_t num_heads, uint32_t num_kv_heads,
                      uint32_t head_dim) {
  const TiledShape tiles = MakeTiledShape(tuning, num_heads, num_kv_heads, head_dim);
  TileRules rules = {.tile_rows = tiles.tile_rows};
  if (tiles.kernel != KernelId::kTiledQuads) return rules;
  if (!HasChainsKernel(tuning, num_heads, num_kv_heads, head_dim)) rules.chain_rows = kLongRows;
  rules.decoded_rows = kDecodedPairs / num_heads;
  return rules;
}

Launch ChainsLaunch(const Tuning& tuning, const ChainsArgs& args) {
  const ChainsPush& push = args.push;
  TANDEM_CHECK(HasChainsKernel(tuning, push.num_heads, push.num_kv_heads, args.head_dim));
  const TiledShape tiles = MakeTiledShape(tuning, push.num_heads, push.num_kv_heads, args.head_dim);
  const uint32_t queries = std::min(kChainsQueries, tiles.queries);
  Launch launch = MakeLaunch(KernelId::kChains, kChainsThreads, push, push.num_heads / queries,
                             MaxTiles(args.max_rows, tiles.tile_rows));
  launch.constants[kHeadDim] = args.head_dim;
  launch.constants[kQueries] = queries;
  launch.constants[kChainsMostRows] = kChainRows;
  SetFragmentLayout(tuning.matrix.fragments, launch);
  launch.constants[kBlockTokens] = args.block_tokens;
  launch.constants[kFormat] = static_cast<uint32_t>(args.format);
  launch.constants[kKvFormat] = static_cast<uint32_t>(FormatOf(args.kv_dtype, args.head_dim));
  return launch;
}

std::vector<float> MakeRotationTable(uint32_t head_dim, uint32_t context_len, double theta,
                                     double position_scale) {
  constexpr uint32_t kLow = 256;
  const uint32_t high = (context_len + kLow - 1) / kLow;
  const uint32_t pairs = head_dim / 2;
  std::vector<float> table(size_t{kLow + high} * head_dim);
  for (uint32_t row = 0; row < kLow + high; ++row) {
    const double position = row < kLow ? row : double{kLow} * (row - kLow);
    for (uint32_t i = 0; i < pairs; ++i) {
      const double angle =
          position / position_scale * std::pow(theta, -2.0 * i / static_cast<double>(head_dim));
      table[size_t{row} * head_dim + 2 * i] = static_cast<float>(std::cos(angle));
      table[size_t{row} * head_dim + 2 * i + 1] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace tandem::gpu
