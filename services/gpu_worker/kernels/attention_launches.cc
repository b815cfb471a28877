#include "services/gpu_worker/kernels/attention_launches.h"

#include <algorithm>
#include <cmath>

namespace tandem::gpu {
namespace {

// Constant ids of attention.comp.
constexpr uint32_t kHeadDim = 3;
constexpr uint32_t kQueries = 4;
constexpr uint32_t kLanes = 5;

}  // namespace

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
