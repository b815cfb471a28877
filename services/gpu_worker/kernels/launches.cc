#include "services/gpu_worker/kernels/launches.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "services/common/base/check.h"
#include "shaders/tandem_gpu_shaders.h"

namespace tandem::gpu {
namespace {

// Constant ids, as in the shaders.
constexpr uint32_t kLocalSize = 0;
constexpr uint32_t kDtype = 3;    // embed, matmul
constexpr uint32_t kGather = 3;   // rms_norm
constexpr uint32_t kHeadDim = 3;  // attention
constexpr uint32_t kMatmulRows = 4;
constexpr uint32_t kMatmulColumns = 5;
constexpr uint32_t kMatmulXF16 = 6;
constexpr uint32_t kMatmulGeglu = 7;
constexpr uint32_t kQueries = 4;
constexpr uint32_t kLanes = 5;

constexpr uint32_t kCopyPiece = 2048;  // copy_rows.comp

uint32_t DivideUp(uint64_t value, uint64_t by) {
  return static_cast<uint32_t>((value + by - 1) / by);
}

template <typename Push>
Launch MakeLaunch(KernelId kernel, uint32_t local_size, const Push& push, uint32_t groups_x,
                  uint32_t groups_y) {
  static_assert(sizeof(Push) <= vulkan::kPushConstantBytes);
  Launch launch;
  launch.kernel = kernel;
  launch.constants[kLocalSize] = local_size;
  std::memcpy(launch.push.data(), &push, sizeof(Push));
  launch.push_bytes = sizeof(Push);
  launch.groups_x = groups_x;
  launch.groups_y = groups_y;
  return launch;
}

}  // namespace

const KernelTraits& Traits(KernelId id) {
  static constexpr KernelTraits kKernels[kNumKernels] = {
      {"embed", shaders::kEmbed},
      {"copy_rows", shaders::kCopyRows},
      {"rms_norm", shaders::kRmsNorm},
      {"add_norm", shaders::kAddNorm},
      {"matmul", shaders::kMatmul},
      {"qk_norm_rope", shaders::kQkNormRope},
      {"kv_append", shaders::kKvAppend},
      {"attention", shaders::kAttention},
      {"head_reduce", shaders::kHeadReduce},
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

Launch RmsNormLaunch(const Tuning& tuning, const RmsNormPush& push, bool gather,
                     uint32_t max_rows) {
  Launch launch = MakeLaunch(KernelId::kRmsNorm, tuning.norm_threads, push, max_rows, 1);
  launch.constants[kGather] = gather ? 1 : 0;
  return launch;
}

Launch AddNormLaunch(const Tuning& tuning, const AddNormPush& push, uint32_t max_rows) {
  return MakeLaunch(KernelId::kAddNorm, tuning.norm_threads, push, max_rows, 1);
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

Launch QkNormRopeLaunch(const Tuning& tuning, const QkNormRopePush& push, uint32_t max_rows) {
  return MakeLaunch(KernelId::kQkNormRope, tuning.subgroup_size, push,
                    push.num_heads + 2 * push.num_kv_heads, max_rows);
}

Launch KvAppendLaunch(const Tuning& tuning, const KvAppendPush& push, uint32_t max_rows) {
  return MakeLaunch(KernelId::kKvAppend, tuning.subgroup_size, push, push.num_kv_heads, max_rows);
}

Launch AttentionLaunch(const Tuning& tuning, const AttentionPush& push, uint32_t head_dim,
                       uint32_t max_rows) {
  const uint32_t ratio = push.num_heads / push.num_kv_heads;
  uint32_t queries = std::min(ratio, tuning.attention_queries);
  while (ratio % queries != 0) --queries;
  Launch launch = MakeLaunch(KernelId::kAttention, tuning.subgroup_size, push,
                             push.num_heads / queries, max_rows);
  launch.constants[kHeadDim] = head_dim;
  launch.constants[kQueries] = queries;
  launch.constants[kLanes] = tuning.subgroup_size;
  return launch;
}

Launch HeadReduceLaunch(const Tuning& tuning, const HeadReducePush& push, uint32_t max_rows) {
  return MakeLaunch(KernelId::kHeadReduce, ReduceThreads(tuning, push.vocab_size), push, max_rows,
                    1);
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
