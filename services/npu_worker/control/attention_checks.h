// What attention's control code can be made for.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "services/npu_worker/control/attention.h"
#include "services/npu_worker/kernels/aie/attention_tile.h"

namespace tandem::npu {

inline constexpr uint32_t kCacheElementBytes = 2;  // a bfloat16
inline constexpr uint32_t kAttentionColumnQueries = kAttentionQueries * kAttentionCores;

// The first position that a row of the run at `position` sees.
uint32_t FirstSeen(const AttentionJob& job, const AttentionRun& run, uint32_t position);

// INVALID_ARGUMENT as BuildAttention.
absl::Status CheckAttentionJob(const AttentionJob& job);
absl::Status CheckAttentionRun(const AttentionJob& job, const AttentionRun& run);

}  // namespace tandem::npu
